"""A checkpoint becomes files that the engine runs with the network's own answers; what cannot is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import openvino
import openvino_genai
import pytest
import torch
import transformers

from tests.repository.optimize.checkpoints import CONFIGURATIONS, SIZES, VOCABULARY, change, write_checkpoint
from tritonkit.errors import BuildError, GateError, RenderError, SpecError
from tritonkit.repository.export import Artifact
from tritonkit.repository.export.artifact import Signature
from tritonkit.repository.export.checkpoint import read_checkpoint
from tritonkit.repository.export.language import read_texts
from tritonkit.repository.inspection import inspect_model
from tritonkit.repository.modelspec import load_all
from tritonkit.repository.optimize.llm import WEIGHTS, Weights, convert_checkpoint
from tritonkit.repository.optimize.llm.quality import served_log_likelihoods
from tritonkit.repository.optimize.variants import llm_checkpoint
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.render.language import generation_of
from tritonkit.repository.report import collect

PACKAGES = [("openvino", "fp32"), ("openvino_genai", "int4"), ("nncf", "int8")]
IDS = np.random.default_rng(0).integers(5, VOCABULARY, (1, 12)).astype(np.int64)
NEW = 24


def greedy(folder: Path) -> list[int]:
    """Tokens with which the engine continues IDS."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = 32
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    pipeline = openvino_genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", exact)
    options = openvino_genai.GenerationConfig()
    options.max_new_tokens, options.eos_token_id, options.stop_token_ids = NEW, 0, {0}
    options.ignore_eos = True
    handle = pipeline.add_request(0, openvino.Tensor(IDS), options)
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return [token for output in handle.read_all() for token in output.generated_ids]


class Untrained:
    """A job whose checkpoint would be trained now."""

    @property
    def checkpoint(self) -> None:
        """Two minutes of work."""
        pytest.fail("trained before the packages were looked for")


@pytest.mark.parametrize(("package", "weights"), PACKAGES)
def test_a_missing_package_is_said_before_the_checkpoint_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, weights: Weights
) -> None:
    """The error names the extra that brings it, and does not blame the architecture."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BuildError) as caught:
        llm_checkpoint.make(cast(Any, Untrained()), tmp_path, weights=weights)
    assert caught.value.found == f"the package {package} is not installed"
    assert caught.value.todo.startswith("make optimize, or: pip install 'tritonkit[")


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_engine_goes_on_as_the_network_does(tmp_path: Path, name: str) -> None:
    """Token by token, with pages instead of the network's own cache."""
    source, out = write_checkpoint(tmp_path / "source", name), tmp_path / "out"
    out.mkdir()
    checkpoint = read_checkpoint(source)
    assert (checkpoint.context, checkpoint.sizes["vocab_size"]) == (128, VOCABULARY)
    convert_checkpoint(checkpoint, out)
    expected = checkpoint.load().generate(
        torch.from_numpy(IDS), max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, IDS.shape[1] :]
    assert greedy(out) == expected.tolist()
    assert {"config.json", "tokenizer.json"} <= {file.name for file in out.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("weights", WEIGHTS)
def test_fewer_bits_lose_little(tmp_path: Path, weights: Weights) -> None:
    """The log-likelihood stays near that of the network; the file is smaller."""
    checkpoint, out = read_checkpoint(write_checkpoint(tmp_path / "source")), tmp_path / "out"
    out.mkdir()
    convert_checkpoint(checkpoint, out, weights)
    [likelihood] = served_log_likelihoods(out, [IDS[0]], threads=1)
    with torch.inference_mode():
        ids = torch.from_numpy(IDS)
        expected = -float(checkpoint.load()(input_ids=ids, labels=ids).loss)
    lost = {"fp32": 1e-4, "bf16": 0.01, "int8": 0.02, "int4": 0.3}[weights]
    assert likelihood == pytest.approx(expected, rel=lost)
    size = (out / "openvino_model.bin").stat().st_size
    full = (checkpoint.folder / "model.safetensors").stat().st_size
    assert size < {"fp32": 1.4, "bf16": 0.7, "int8": 0.4, "int4": 0.35}[weights] * full


WINDOW = 8
SLIDING = {
    "mistral": transformers.MistralConfig(**SIZES, sliding_window=WINDOW),
    "phi3": transformers.Phi3Config(**SIZES, sliding_window=WINDOW),
    "qwen2": transformers.Qwen2Config(**SIZES, sliding_window=WINDOW, use_sliding_window=True, max_window_layers=0),
}


@pytest.mark.parametrize("name", SLIDING)
def test_no_more_is_served_than_a_sliding_window(tmp_path: Path, name: str) -> None:
    """The traced network attends to all tokens, and the library does not report the difference."""
    transformers.AutoModelForCausalLM.from_config(SLIDING[name]).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint.context == WINDOW
    assert json.loads(checkpoint.configuration)["max_position_embeddings"] == WINDOW
    change(tmp_path, sliding_window=None, use_sliding_window=False, layer_types=None)
    assert read_checkpoint(tmp_path).context == 128


def test_sizes_that_the_configuration_leaves_to_the_library(tmp_path: Path) -> None:
    """A server counts the cache's memory by them, and has no transformers."""
    folder = write_checkpoint(tmp_path / "source", "phi")
    change(folder, num_key_value_heads=None)
    configuration = json.loads(read_checkpoint(folder).configuration)
    assert configuration["num_key_value_heads"] == configuration["num_attention_heads"] == 4


def test_an_architecture_without_paged_attention_is_named(tmp_path: Path) -> None:
    """Its experts have an operator that OpenVINO lacks."""
    folder = write_checkpoint(tmp_path / "source")
    sizes = CONFIGURATIONS["llama"].to_dict()
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    mixtral = transformers.MixtralConfig(
        **{key: sizes[key] for key in keys}, num_key_value_heads=2, num_local_experts=2
    )
    transformers.AutoModelForCausalLM.from_config(mixtral).save_pretrained(folder)
    with pytest.raises(BuildError, match="MixtralForCausalLM cannot be converted"):
        convert_checkpoint(read_checkpoint(folder), tmp_path)


def write_project(root: Path, more: str = "") -> Path:
    """A project with one language model."""
    folder = root / "models" / "chat"
    write_checkpoint(folder / "checkpoint")
    (folder / "model.yaml").write_text(f"name: chat\nnetwork: {{llm: {{checkpoint: checkpoint}}}}\n{more}")
    return root


@pytest.mark.slow
def test_a_project_builds_it_behind_the_gate(tmp_path: Path) -> None:
    """Its configuration streams, and every input may be left out."""
    more = "serving: {variant: llm-int8, generation: {cache_mib: 32, max_tokens: 16}}\n"
    done = build_repository(write_project(tmp_path, more), cores=2)
    assert done.served == {"chat": "llm-int8"}
    [result] = [candidate for candidate in done.results if candidate.variant == "llm-int8"]
    assert result.passed
    assert result.artifact is not None
    assert result.artifact.quality is not None
    assert result.artifact.quality.metric == "log_likelihood"
    text = (tmp_path / "model_repository/chat/config.pbtxt").read_text()
    for line in (
        'backend: "llm"',
        'name: "prompt"',
        "model_transaction_policy { decoupled: true }",
        'key: "cache_mib"',
        'key: "context"',
    ):
        assert line in text
    assert text.count("optional: true") == 17
    assert (tmp_path / "model_repository/chat/1/openvino_model.bin").is_file()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("serving: {variant: onnx-fp16}", "unknown variant"),
        ("quality: {metric: 'a:b'}", "quality has a metric"),
        ("pipeline: [network]", "pipeline is given"),
        ("serving: {generation: {cache_mib: 0}}", "cache_mib"),
        ("serving: {generation: {context: 1}}", "context"),
        ("serving: {generation: {context: 8, max_tokens: 8}}", "max_tokens is 8, context is 8"),
        ("serving: {generation: {max_sequences: 1024}}", "max_batched_tokens is 512, max_sequences"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(tmp_path: Path, more: str, message: str) -> None:
    """With its place."""
    root = write_project(tmp_path, more)
    with pytest.raises(SpecError, match=message):
        build_repository(root)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["context: 129", "max_tokens: 128"])
def test_more_tokens_than_the_network_has_positions_for_are_refused(tmp_path: Path, key: str) -> None:
    """The build refuses them, not the server."""
    root = write_project(tmp_path, f"serving: {{generation: {{{key}}}}}\n")
    with pytest.raises(RenderError, match="the network was made for 128 tokens"):
        build_repository(root, cores=2)


WIDE = {"max_position_embeddings": 4096, "hidden_size": 4096, "num_hidden_layers": 1, "num_attention_heads": 16}
"""A page of its cache takes half a MiB."""


def test_an_answer_that_the_cache_has_no_room_for_is_refused(tmp_path: Path) -> None:
    """The build refuses it, and says how many tokens fit."""
    (tmp_path / "config.json").write_text(json.dumps(WIDE))
    root = write_project(tmp_path / "project", "serving: {generation: {cache_mib: 1}}\n")
    [spec] = load_all(root)
    artifact = Artifact("chat", "llm-fp32", tmp_path, {"config.json": ""}, Signature.declared(spec), None, "", {})
    with pytest.raises(RenderError, match=r"max_tokens: 128\n.*at most 63: .*cache_mib 1 holds 64 tokens"):
        generation_of(spec, artifact)
    (spec.folder / "model.yaml").write_text(
        "name: chat\nnetwork: {llm: {checkpoint: checkpoint}}\n"
        "serving: {generation: {cache_mib: 1}, parameters: {cache_mib: '64'}}\n"
    )
    [spec] = load_all(root)
    assert generation_of(spec, artifact).max_tokens == 128


@pytest.mark.slow
def test_what_is_known_is_shown(tmp_path: Path) -> None:
    """Before anything is built, and of what lies in the cache; the served one is named, the FP32 one compared with."""
    root = write_project(tmp_path, "serving: {variant: llm-int8}\n")
    [spec] = load_all(root)
    inspection = inspect_model(spec, "cpu", 2)
    assert (inspection.variant, inspection.network) == ("llm-int8", {"llm.checkpoint": "checkpoint"})
    assert [plan.backend for plan in inspection.models] == ["llm"]
    assert not inspection.unknown
    build_repository(root, cores=2, variants=["llm-fp32"])
    [model] = collect(root, threads=1)
    assert [result.variant for result in model.results] == ["llm-fp32", "llm-int8"]
    assert model.served == "llm-int8"
    assert list(model.missing) == ["llm-bf16", "llm-int4"]


@pytest.mark.slow
def test_a_quality_that_is_not_reached_is_refused(tmp_path: Path) -> None:
    """Random weights know nothing."""
    root = write_project(tmp_path, "quality: {at_least: -1.0}\n")
    assert load_all(root)
    with pytest.raises(GateError, match="log_likelihood"):
        build_repository(root, cores=2)


@pytest.mark.slow
def test_a_variant_that_loses_too_much_is_advised_more_bits(tmp_path: Path) -> None:
    """Weights in few bits need no calibration data, so none are advised."""
    root = write_project(tmp_path, "serving: {variant: llm-int4}\nquality: {max_drop: 0.0}\n")
    with pytest.raises(GateError, match="more bits") as caught:
        build_repository(root, cores=2)
    assert "calibration" not in str(caught.value)


@pytest.mark.parametrize(
    "parts",
    [
        {"model": {"type": "Unheard"}},
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": "(?:(.|..|...)+)+[0-9]{7}"},
                "behavior": "Isolated",
                "invert": False,
            }
        },
    ],
    ids=["unknown", "endless"],
)
def test_a_tokenizer_that_fails_is_said(tmp_path: Path, parts: dict[str, Any]) -> None:
    """Also where its library panics over a text."""
    root = write_project(tmp_path)
    file = root / "models" / "chat" / "checkpoint" / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))
    [spec] = load_all(root)
    with pytest.raises(BuildError, match=r"tokenizer\.json: the tokenizer cannot cut texts"):
        read_texts(spec, read_checkpoint(file.parent))


@pytest.mark.parametrize("row", ['{"text": null}', '{"other": "words"}', '{"text": 5}', '{"text": ["words"]}'])
def test_samples_are_texts(tmp_path: Path, row: str) -> None:
    """JSON's null is not the text None, whose likelihood would count."""
    root = write_project(tmp_path, "quality: {samples: {jsonl: a.jsonl}}\n")
    folder = root / "models" / "chat"
    (folder / "a.jsonl").write_text(f'{{"text": "the cat sat on the mat"}}\n{row}\n')
    [spec] = load_all(root)
    with pytest.raises(BuildError) as caught:
        read_texts(spec, read_checkpoint(folder / "checkpoint"))
    assert caught.value.found.startswith("a.jsonl:2, text: found ")
    assert caught.value.wanted == "a text"
