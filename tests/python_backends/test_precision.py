"""Each engine computes FP32 in FP32, even on processors with bfloat16 or other short types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai
import pytest
from llm_config import read_settings
from llm_engine import pipeline_maker
from onnxruntime_config import HALF_ENTRY, session_options
from openvino_config import properties
from openvino_engine import Forms

from tests.python_backends.llm_network import write_model
from tests.python_backends.test_openvino_config import BATCHED, affine, parameters
from tritonkit.repository.export.onnx_file import session_options as options_of_the_build
from tritonkit.repository.optimize.llm import convert
from tritonkit.repository.optimize.openvino_core import PRECISION, compile_for_cpu

HALF = "bf16"
INSTRUCTION_SETS = {"avx2": "AVX2", "avx512vl": "AVX512_CORE", "avx512_bf16": "AVX512_CORE_BF16"}
"""The flag in /proc/cpuinfo -> what oneDNN, inside OpenVINO, can be capped at."""
LANGUAGE: dict[str, Any] = {"model_transaction_policy": {"decoupled": True}}


def compiled_in(network: Any) -> str:
    """The precision that a compiled network names."""
    return {openvino.Type.f32: "f32", openvino.Type.bf16: HALF}[network.get_property(PRECISION)]


def test_what_the_stand_in_compiles_says_its_precision(tmp_path: Path) -> None:
    """FP32 for every form, unless the configuration has a hint."""
    core = openvino.Core()
    model = core.read_model(affine(tmp_path, [-1, 4]))
    has_half = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    for config, expected in ((BATCHED, "f32"), (BATCHED | parameters(HINT_BF16="YES"), HALF if has_half else "f32")):
        forms = Forms(core, model, config, properties(config))
        fixed = forms.fixed(2)
        assert fixed is not None
        assert [compiled_in(form.compiled) for form in (forms.free(), fixed)] == [expected] * 2


@pytest.mark.parametrize("precision", [None, "f32"])
def test_what_the_build_compiles_says_its_precision(tmp_path: Path, precision: str | None) -> None:
    """The precision is FP32 unless the file or the caller requests another."""
    model = openvino.Core().read_model(affine(tmp_path, [-1, 4]))
    assert compiled_in(compile_for_cpu(model, 1, precision)) == "f32"


def test_language_models_are_opened_with_a_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipelines that serve and that the build tries get a precision, because GenAI cannot report it."""
    given: list[str] = []
    opened = openvino_genai.ContinuousBatchingPipeline

    def open_pipeline(folder: str, scheduler: Any, device: str, options: dict[str, Any]) -> Any:
        given.append(options[PRECISION])
        return opened(folder, scheduler, device, options)

    monkeypatch.setattr(openvino_genai, "ContinuousBatchingPipeline", open_pipeline)
    folder = write_model(tmp_path / "1")
    for settings in ({"cache_mib": "1"}, {"cache_mib": "1", "inference_precision": HALF}):
        config = LANGUAGE | parameters(**settings)
        pipeline_maker(read_settings(config, folder), str(folder))()
    convert._check_runs(folder, "test", "f32")
    assert given == ["f32", HALF, "f32"]


def test_sessions_of_onnx_runtime_have_no_half_products() -> None:
    """On ARM a session entry would turn them on; a model's parameter decides."""
    for options in (session_options({}), options_of_the_build()):
        assert options.get_session_config_entry(HALF_ENTRY) == "0"
    changed = session_options(parameters(**{HALF_ENTRY: "1"}))
    assert changed.get_session_config_entry(HALF_ENTRY) == "1"


def answers(folder: str) -> dict[str, list[float]]:
    """Answers of a matrix product and of a language model on this processor."""
    core, config = openvino.Core(), BATCHED | parameters(INFERENCE_NUM_THREADS="1")
    forms = Forms(core, core.read_model(Path(folder, "model.xml")), config, properties(config))
    x = np.array([[0.1, 1 / 3, 0.7, 1.001]], np.float32)
    product = forms.free().run([{"x": x}], ["y"])["y"]
    settings = read_settings(LANGUAGE | parameters(cache_mib="1", threads="1"), Path(folder, "1"))
    pipeline = pipeline_maker(settings, str(Path(folder, "1")))()
    options = openvino_genai.GenerationConfig(max_new_tokens=8, ignore_eos=True, logprobs=1)
    handle = pipeline.add_request(0, openvino.Tensor(np.array([[5, 9, 30, 77]])), options)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    [output] = handle.read_all()
    return {"product": product[0].tolist(), "tokens": list(output.generated_log_probs)}


def answers_capped(folder: Path, cap: str) -> Any:
    """The same by a process whose OpenVINO uses no instructions beyond the cap."""
    call = f"print(json.dumps(answers({str(folder)!r})))"
    code = f"import json, sys; sys.path[:] = {sys.path!r}; from {__name__} import answers; {call}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": cap},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_answers_are_those_of_fp32_with_each_instruction_set(tmp_path: Path) -> None:
    """Answers differ only by FP32's rounding: bfloat16 has three digits, and would miss it by far."""
    affine(tmp_path, [-1, 4])
    write_model(tmp_path / "1")
    flags = Path("/proc/cpuinfo").read_text().split()
    caps = [cap for flag, cap in INSTRUCTION_SETS.items() if flag in flags]
    expected = answers(str(tmp_path))
    np.testing.assert_allclose(expected["product"], [0.1 + 1 / 3 + 0.7 + 1.001] * 2, rtol=1e-6)
    for cap in caps:
        capped = answers_capped(tmp_path, cap)
        for name, values in expected.items():
            np.testing.assert_allclose(capped[name], values, rtol=1e-4, atol=1e-5, err_msg=cap)
