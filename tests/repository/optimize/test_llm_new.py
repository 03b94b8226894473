"""`tritonkit new --llm`: a checkpoint becomes a model that builds; what does not count is not copied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import failed, tritonkit_here
from tests.repository.optimize.checkpoints import write_checkpoint
from tritonkit.repository.modelspec import load
from tritonkit.repository.pipeline import build_repository
from tritonkit.repository.render.language import cached_tokens


def new(root: Path, *arguments: str) -> tuple[str, ...]:
    """The command's words."""
    return ("new", "chat", *arguments, "--root", str(root))


def test_a_checkpoint_becomes_a_model_that_builds(tmp_path: Path) -> None:
    """A copy of what counts, and a cache with room for several sequences of the whole length."""
    given = write_checkpoint(tmp_path / "given")
    for name in ("pytorch_model.bin", "README.md", "modeling.py"):
        (given / name).write_text("raise SystemExit")
    done = tritonkit_here(*new(tmp_path, "--llm", str(given)))
    assert done.returncode == 0, done.stderr
    assert "LlamaForCausalLM, 128 tokens: copying" in done.stderr
    assert "next: tritonkit build chat" in done.stderr
    folder = tmp_path / "models" / "chat"
    assert sorted(file.name for file in (folder / "checkpoint").iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    generation = load(folder, tmp_path).model.serving.generation
    assert (generation.context, generation.cache_mib) == (128, 64)
    version = build_repository(tmp_path, cores=1).path / "chat" / "1"
    network = json.loads((version / "config.json").read_text())
    assert cached_tokens(network, generation.cache_mib) >= 8 * generation.context


def test_a_long_context_is_cut_and_the_cache_follows(tmp_path: Path) -> None:
    """The network has 32,768 tokens, with keys and values of 12 KiB per token as in Qwen2.5-0.5B."""
    given = write_checkpoint(tmp_path / "given")
    sizes = {"num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2}
    config = json.loads((given / "config.json").read_text()) | sizes
    config |= {"max_position_embeddings": 32_768, "head_dim": 64}
    (given / "config.json").write_text(json.dumps(config))
    done = tritonkit_here(*new(tmp_path, "--llm", str(given), "--json"))
    assert json.loads(done.stdout)["folder"].endswith("models/chat")
    generation = load(tmp_path / "models" / "chat", tmp_path).model.serving.generation
    assert (generation.context, generation.cache_mib) == (4096, 8 * 4096 * 12 // 1024)


def test_weights_in_several_files_come_with_their_index(tmp_path: Path) -> None:
    """The Hub splits large networks so; files of its cache are links, and the copies are not."""
    given = write_checkpoint(tmp_path / "cache" / "snapshots" / "0123")
    blob = tmp_path / "cache" / "blobs" / "blob"
    blob.parent.mkdir()
    (given / "model.safetensors").rename(blob)
    (given / "model-00001-of-00001.safetensors").symlink_to(blob)
    (given / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert tritonkit_here(*new(tmp_path, "--llm", str(given))).returncode == 0
    copied = tmp_path / "models" / "chat" / "checkpoint"
    assert (copied / "model.safetensors.index.json").is_file()
    weights = copied / "model-00001-of-00001.safetensors"
    assert not weights.is_symlink()
    assert weights.read_bytes() == blob.read_bytes()


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """One message, and no folder is left."""
    pickles = write_checkpoint(tmp_path / "pickles")
    (pickles / "model.safetensors").rename(pickles / "pytorch_model.bin")
    assert "pickle can run code" in failed(tritonkit_here(*new(tmp_path, "--llm", str(pickles))), 3)
    absent = failed(tritonkit_here(*new(tmp_path, "--llm", "gpt2")), 3)
    assert "on this machine" in absent
    assert "hf download" in absent
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "no network"),
        (("--llm", "a", "--onnx", "b"), "--onnx and --llm"),
        (("--llm", "a", "--input", "x=FP32:4"), "--input together with --llm"),
        (("--onnx", "a", "--weights", "b"), "--weights together with --onnx"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, more: tuple[str, ...], message: str) -> None:
    """The message names them."""
    assert message in failed(tritonkit_here(*new(tmp_path, *more)), 2)
