"""Checkpoints of strangers: their files are checked before anything of them is used."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import transformers

from tests.repository.optimize.checkpoints import VOCABULARY, change, write_checkpoint
from tritonkit.errors import BuildError
from tritonkit.repository.export.checkpoint import read_checkpoint
from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.scaffold import new_from_checkpoint


def without_attention(folder: Path) -> None:
    """A network of another kind."""
    transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, architectures=["MambaForCausalLM"]
    ).save_pretrained(folder)


@pytest.mark.parametrize(
    ("spoil", "message"),
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
def test_what_cannot_be_served_is_refused(tmp_path: Path, spoil: object, message: str) -> None:
    """The refusal comes before anything of the checkpoint runs."""
    folder = write_checkpoint(tmp_path / "source")
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(BuildError, match=message):
        read_checkpoint(folder)


def test_weights_that_are_missing_are_no_random_numbers(tmp_path: Path) -> None:
    """The library would fill missing weights up and only warn."""
    folder = write_checkpoint(tmp_path / "source")
    change(folder, num_hidden_layers=3)
    with pytest.raises(BuildError, match="no weights for"):
        read_checkpoint(folder).load()


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
    ("spoil", "message"),
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
def test_a_stranger_s_files_are_looked_at_first(tmp_path: Path, spoil: object, message: str) -> None:
    """Their place, size and work are checked: no link, size or template is trusted."""
    folder = write_checkpoint(tmp_path / "source")
    (tmp_path / "secret").write_text("SECRET of the operator")
    assert callable(spoil)
    spoil(folder)
    with pytest.raises(BuildError, match=message):
        read_checkpoint(folder)


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
