"""A language model on GPUs: the files that its engine reads, and the settings that are refused."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.repository.optimize.checkpoints import write_checkpoint
from tests.repository.render.cases import make_case
from tritonkit.errors import RenderError, SpecError
from tritonkit.repository.inspection import inspect_model
from tritonkit.repository.modelspec import load_all
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.publish.integrity import verify
from tritonkit.resources import shipped


def rendered(tmp_path: Path, engine: str, target: str = "gpu", **generation: Any) -> Any:
    """The plan of a language model whose spec says this of `serving.generation`."""
    gpu = {"name": engine} | generation.pop("gpu", {})
    more = generation.pop("serving", {})
    serving = {"generation": generation | {"gpu": gpu}} | more
    facts = {
        "model": {"name": "chat", "network": {"llm": {"checkpoint": "checkpoint"}}, "serving": serving},
        "files": {"checkpoint/config.json": "{}", "config.json": '{"max_position_embeddings": 8192}'},
        "file": "config.json",
        "variant": engine,
        "target": target,
        "signature": {"inputs": {}, "outputs": {}, "batched": False},
    }
    (plan,) = make_case("chat", facts, tmp_path).plans()
    return plan


def arguments(plan: Any) -> dict[str, Any]:
    """The arguments that the engine gets."""
    (text,) = plan.version_texts.values()
    return dict(json.loads(text))


def test_both_guess_with_a_draft_and_without(tmp_path: Path) -> None:
    """Each method has the engine's own name."""
    settings = {
        (engine, draft): arguments(
            rendered(tmp_path / engine / str(draft), engine, gpu={"speculation": {"tokens": 3, "draft": draft}})
        )["speculative_config"]
        for engine in ("vllm", "tensorrt-llm")
        for draft in ("org/small", None)
    }
    assert settings == {
        ("vllm", "org/small"): {"method": "draft_model", "model": "org/small", "num_speculative_tokens": 3},
        ("vllm", None): {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
        ("tensorrt-llm", "org/small"): {
            "decoding_type": "Draft_Target",
            "max_draft_len": 3,
            "speculative_model": "org/small",
        },
        ("tensorrt-llm", None): {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 4},
    }


def test_limits_made_for_cpus_are_not_told(tmp_path: Path) -> None:
    """Only the spec's own settings are passed on: the engines have defaults for the GPU they find."""
    assert (
        not {"max_num_seqs", "max_num_batched_tokens", "max_model_len"}
        & arguments(rendered(tmp_path / "a", "vllm")).keys()
    )
    assert arguments(rendered(tmp_path / "b", "vllm", max_sequences=64))["max_num_seqs"] == 64


def test_parameters_of_the_spec_come_before_ours(tmp_path: Path) -> None:
    """The spec's parameters win, such as the GPUs that one of several models may use."""
    parameters = {"GPU_DEVICE_IDS": "2,3", "REPORT_CUSTOM_METRICS": "false"}
    plan = rendered(tmp_path, "vllm", serving={"parameters": parameters}, gpu={"tensor_parallel": 2})
    assert plan.parameters == parameters


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        ({"batching": "static"}, "continuous, the engine's only mode"),
        ({"context": 9000}, "at most 8192"),
        ({"gpu": {"tensor_parallel": 2}, "serving": {"instance_group": [{"kind": "gpu"}]}}, "2 x 1 GPUs"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(tmp_path: Path, generation: dict[str, Any], message: str) -> None:
    """The refusal comes before anybody tries it on a GPU that costs money."""
    with pytest.raises(RenderError, match=message):
        rendered(tmp_path, "vllm", **generation)


def test_a_prompt_that_no_step_has_room_for_is_refused(tmp_path: Path) -> None:
    """Without chunks a step must have room for a whole prompt."""
    with pytest.raises(SpecError, match="chunked_prefill"):
        rendered(tmp_path, "vllm", context=4096, max_batched_tokens=1024, gpu={"chunked_prefill": False})


def test_an_engine_needs_a_gpu(tmp_path: Path) -> None:
    """The target chooses its variant, not a person."""
    with pytest.raises(RenderError, match="--target nvidia"):
        rendered(tmp_path, "vllm", target="cpu")


def test_one_spec_for_both_targets(tmp_path: Path) -> None:
    """The GPU repository is built without the weights, which stay where they are; a changed setting is a new
    version."""
    folder = tmp_path / "models" / "chat"
    write_checkpoint(folder / "checkpoint")
    text = "name: chat\nnetwork: {llm: {checkpoint: checkpoint}}\n"
    (folder / "model.yaml").write_text(text)
    done = build_repository(tmp_path, target="gpu")
    assert done.served == {"chat": "vllm"}
    version = done.path / "chat" / "1"
    assert sorted(file.name for file in version.iterdir()) == ["manifest.json", "model.json"]
    assert json.loads((version / "model.json").read_text())["model"] == "/checkpoints/chat"
    assert verify(done.path) == []
    assert [change.action for change in build_repository(tmp_path, target="gpu").changes] == ["unchanged"]
    (folder / "model.yaml").write_text(f"{text}serving: {{generation: {{gpu: {{cache_fraction: 0.5}}}}}}\n")
    again = build_repository(tmp_path, target="gpu")
    assert [(change.action, change.version) for change in again.changes] == [("new version", 2)]
    assert build_repository(tmp_path, cores=1).served == {"chat": "llm-fp32"}
    [spec] = load_all(tmp_path)
    inspection = inspect_model(spec, "gpu", 2)
    assert (inspection.variant, [plan.backend for plan in inspection.models], inspection.unknown) == (
        "vllm",
        ["vllm"],
        (),
    )


def test_the_image_has_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our model runs NVIDIA's file, which imports its neighbors; without that file, the message names the image that
    has it."""
    own = tmp_path / "own"
    own.mkdir()
    shutil.copyfile(shipped("python_backends/tensorrt_llm/model.py"), own / "model.py")
    spec = importlib.util.spec_from_file_location("model", own / "model.py")
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.setenv("TRITONKIT_LLMAPI", str(tmp_path / "theirs"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ImportError, match="trtllm-python-py3"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "helpers_of_theirs.py").write_text("NAME = 'theirs'\n")
    (theirs / "model.py").write_text("from helpers_of_theirs import NAME\nclass TritonPythonModel:\n    name = NAME\n")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TritonPythonModel.name == "theirs"
    for name in ("helpers_of_theirs", "tensorrt_llm_llmapi"):
        monkeypatch.delitem(sys.modules, name)
