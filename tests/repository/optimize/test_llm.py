"""A checkpoint becomes files that the engine runs with the network's own answers; what cannot is refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import openvino
import openvino_genai
import pytest
import torch
import transformers

from tests.repository.optimize.checkpoints import CONFIGURATIONS, SIZES, VOCABULARY, write_checkpoint
from tritonkit.errors import BuildError, GateError, RenderError, SpecError
from tritonkit.repository.export import Artifact
from tritonkit.repository.export.artifact import Signature
from tritonkit.repository.export.checkpoint import read_checkpoint
from tritonkit.repository.export.language import read_texts
from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.inspection import inspect_model
from tritonkit.repository.modelspec import load_all
from tritonkit.repository.optimize.llm import WEIGHTS, Weights, convert_checkpoint
from tritonkit.repository.optimize.llm.quality import served_log_likelihoods
from tritonkit.repository.optimize.variants import llm_checkpoint
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.render.language import generation_of
from tritonkit.repository.report import collect
from tritonkit.repository.scaffold import new_from_checkpoint

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


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_engine_goes_on_as_the_network_does(tmp_path: Path, name: str) -> None:
    """Token by token, with pages instead of the network's own cache."""
    source, out = write_checkpoint(tmp_path / "source", name), tmp_path / "out"
    out.mkdir()
    checkpoint = read_checkpoint(source)
    assert (checkpoint.context, checkpoint.sizes["vocab_size"]) == (128, VOCABULARY)
    convert_checkpoint(checkpoint, out)
    wanted = checkpoint.load().generate(
        torch.from_numpy(IDS), max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0, IDS.shape[1] :]
    assert greedy(out) == wanted.tolist()
    assert {"config.json", "tokenizer.json"} <= {file.name for file in out.iterdir()}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_fewer_bits_lose_little(tmp_path: Path, weights: Weights) -> None:
    """The log-likelihood stays near that of the network; the file is smaller."""
    checkpoint, out = read_checkpoint(write_checkpoint(tmp_path / "source")), tmp_path / "out"
    out.mkdir()
    convert_checkpoint(checkpoint, out, weights)
    [found] = served_log_likelihoods(out, [IDS[0]], threads=1)
    with torch.inference_mode():
        ids = torch.from_numpy(IDS)
        wanted = -float(checkpoint.load()(input_ids=ids, labels=ids).loss)
    lost = {"fp32": 1e-4, "bf16": 0.01, "int8": 0.02, "int4": 0.3}[weights]
    assert found == pytest.approx(wanted, rel=lost)
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
    found = json.loads(read_checkpoint(folder).configuration)
    assert found["num_key_value_heads"] == found["num_attention_heads"] == 4


def without_attention(folder: Path) -> None:
    """A network of another kind."""
    transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, architectures=["MambaForCausalLM"]
    ).save_pretrained(folder)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"no config\.json"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"no tokenizer\.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "pickles alone"),
        (lambda folder: change(folder, architectures=["BertModel"]), "BertModel"),
        (lambda folder: change(folder, architectures=None), "architectures"),
        (lambda folder: change(folder, auto_map={"AutoConfig": "a.B"}), "code lies in the"),
        (
            lambda folder: (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}'),
            r"adapter_config\.json: an adapter",
        ),
        (lambda folder: (folder / "config.json").write_text("[1]"), "cannot be read"),
        (without_attention, "MambaForCausalLM without max_position_embeddings"),
    ],
)
def test_what_cannot_be_served_is_refused(tmp_path: Path, spoil: object, said: str) -> None:
    """Before anything of it runs."""
    folder = write_checkpoint(tmp_path / "source")
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(BuildError, match=said):
        read_checkpoint(folder)


def change(folder: Path, **keys: object) -> None:
    """Change keys of config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def test_weights_that_are_missing_are_no_random_numbers(tmp_path: Path) -> None:
    """The library fills them up and only warns."""
    folder = write_checkpoint(tmp_path / "source")
    change(folder, num_hidden_layers=3)
    with pytest.raises(BuildError, match="no weights for"):
        read_checkpoint(folder).load()


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


def test_a_project_builds_it_behind_the_gate(tmp_path: Path) -> None:
    """Its configuration streams, and every input may be left out."""
    more = "serving: {variant: llm-int8, generation: {cache_mib: 32, max_tokens: 16}}\n"
    done = build_repository(write_project(tmp_path, more), cores=2)
    assert done.served == {"chat": "llm-int8"}
    [result] = [each for each in done.results if each.variant == "llm-int8"]
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
    assert text.count("optional: true") == 14
    assert (tmp_path / "model_repository/chat/1/openvino_model.bin").is_file()


@pytest.mark.parametrize(
    ("more", "said"),
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
def test_a_spec_that_makes_no_sense_is_refused(tmp_path: Path, more: str, said: str) -> None:
    """With its place."""
    root = write_project(tmp_path, more)
    with pytest.raises(SpecError, match=said):
        build_repository(root)


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


def test_what_is_known_is_shown(tmp_path: Path) -> None:
    """Before anything is built, and of what lies in the cache; the served one is named, the FP32 one compared with."""
    root = write_project(tmp_path, "serving: {variant: llm-int8}\n")
    [spec] = load_all(root)
    found = inspect_model(spec, "cpu", 2)
    assert (found.variant, found.network) == ("llm-int8", {"llm.checkpoint": "checkpoint"})
    assert [plan.backend for plan in found.models] == ["llm"]
    assert not found.unknown
    build_repository(root, cores=2, variants=["llm-fp32"])
    [model] = collect(root, threads=1)
    assert [result.variant for result in model.results] == ["llm-fp32", "llm-int8"]
    assert model.served == "llm-int8"
    assert list(model.missing) == ["llm-bf16", "llm-int4"]


def test_a_quality_that_is_not_reached_is_refused(tmp_path: Path) -> None:
    """Random weights know nothing."""
    root = write_project(tmp_path, "quality: {at_least: -1.0}\n")
    assert load_all(root)
    with pytest.raises(GateError, match="log_likelihood"):
        build_repository(root, cores=2)


def test_a_variant_that_loses_too_much_is_advised_more_bits(tmp_path: Path) -> None:
    """Weights in few bits need no calibration data, so none are advised."""
    root = write_project(tmp_path, "serving: {variant: llm-int4}\nquality: {max_drop: 0.0}\n")
    with pytest.raises(GateError, match="more bits") as caught:
        build_repository(root, cores=2)
    assert "calibration" not in str(caught.value)


def link(name: str, target: str) -> Any:
    """A file of the checkpoint becomes a link."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(folder.parent / target)

    return spoil


def pipe(folder: Path) -> None:
    """A file that nobody ever writes."""
    os.mkfifo(folder / "chat_template.jinja")


def edit(name: str, text: str) -> Any:
    """Another content of a file."""
    return lambda folder: (folder / name).write_text(text)


def grow(folder: Path) -> None:
    """A file without blocks on the disk."""
    os.truncate(folder / "model.safetensors", 1 << 40)


def normalize(folder: Path) -> None:
    """Ten steps, each of which makes a text ten times as long."""
    file = folder / "tokenizer.json"
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    parts = {"normalizer": {"type": "Sequence", "normalizers": [step] * 10}}
    file.write_text(json.dumps(json.loads(file.read_text()) | parts))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (link("chat_template.jinja", "secret"), "a link to .*secret, out of "),
        (link("generation_config.json", "secret"), "a link to .*secret, out of "),
        (link("model.safetensors", "/dev/zero"), "a link to /dev/zero, a device"),
        (link("tokenizer_config.json", "nowhere"), "cannot be read"),
        (pipe, "a pipe"),
        (grow, "in a file of 1,099,511,627,776"),
        (edit("chat_template.jinja", "x" * (1 << 20)), r"1\.0 MiB; at most 512\.0 KiB"),
        (edit("chat_template.jinja", "{% for a in b %}"), "it does not compile: .*line 1"),
        (edit("chat_template.jinja", "\n{{ 'a' * 10 ** 10 }}"), r"more than 64 MiB .*\(line 2\)"),
        (edit("tokenizer_config.json", '{"chat_template": "{{ 1 + }}"}'), "does not compile"),
        (normalize, "normalizer: it makes texts 100 times as long; at most 64"),
        (edit("model.safetensors.index.json", '{"weight_map": {"a": "../secret"}}'), r"weights in '\.\./secret'"),
        (lambda folder: change(folder, num_hidden_layers=2_000_000), "num_hidden_layers: 2,000,000"),
        (lambda folder: change(folder, num_attention_heads=-4), "num_attention_heads: -4"),
    ],
)
def test_a_stranger_s_files_are_looked_at_first(tmp_path: Path, spoil: object, said: str) -> None:
    """Their place, size and work are checked: no link, size or template is trusted."""
    folder = write_checkpoint(tmp_path / "source")
    (tmp_path / "secret").write_text("SECRET of the operator")
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(BuildError, match=said):
        read_checkpoint(folder)


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


def test_a_snapshot_of_a_hub_s_cache_is_copied(tmp_path: Path) -> None:
    """Its files are links to blobs; the copy has regular files of the usual mode."""
    cache = tmp_path / "models--owner--name"
    folder = write_checkpoint(cache / "snapshots" / "0123")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (cache / "blobs").mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        file.rename(cache / "blobs" / str(number)).chmod(0o600)
        file.symlink_to(f"../../blobs/{number}")
    made = new_from_checkpoint(tmp_path / "project", "chat", folder) / "checkpoint"
    (tmp_path / "plain").touch()
    usual = (tmp_path / "plain").stat().st_mode
    assert {file.name for file in made.iterdir()} >= {"chat_template.jinja", "model.safetensors"}
    assert {file.lstat().st_mode for file in made.iterdir()} == {usual}


def test_a_copy_is_what_the_file_was(tmp_path: Path) -> None:
    """A pipe is not waited for, and a file that grows while it is copied ends."""
    (tmp_path / "file").write_bytes(b"abc" * 100_000)
    copy_file(tmp_path / "file", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"abc" * 100_000
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BuildError, match="a pipe"):
        copy_file(tmp_path / "pipe", tmp_path / "other")
    with pytest.raises(BuildError, match="a device"):
        copy_file(Path("/dev/zero"), tmp_path / "other")
