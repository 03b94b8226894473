"""A model.yaml from a stranger is refused immediately, whatever it contains, and nothing in it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tritonkit.errors import SpecError
from tritonkit.repository.modelspec import load


def bomb(first: str, link: str) -> str:
    """Twelve levels, each of which names the one before nine times."""
    rows = [f"a0: &a0 {first}"]
    rows += [f"a{i}: &a{i} {link.format(','.join([f'*a{i - 1}'] * 9))}" for i in range(1, 12)]
    return "name: net\n" + "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb("[x]", "[{}]"), "its aliases written out"),
        (bomb("{x: 1}", "{{<<: [{}]}}"), "its aliases written out"),
        ("name: net\nserving: &a {parameters: *a}", "its aliases written out"),
        ("name: net\nserving: " + "{a: " * 100 + "1" + "}" * 100, "nested deeper"),
        ("name: net\ndescription: " + "x" * (1 << 20), "larger than 256 KiB"),
        ("name: net\n" + "k: [" + "1," * 60_000 + "]", "more than 50000 parts"),
        ("name: !!python/object/apply:os.system ['touch pwned']", "could not determine"),
        ("name: !!int ''", "not YAML"),
        ("name: !!bool perhaps", "not YAML"),
        ("name: !!timestamp never", "not YAML"),
        ("name: \0", "not YAML"),
    ],
    ids=["aliases", "merged", "itself", "deep", "long", "many", "python", "int", "bool", "time", "nul"],
)
def test_a_hostile_document_is_refused(root: Path, text: str, message: str) -> None:
    """Aliases of aliases, depth, length and tags end in one SpecError that names the file."""
    folder = root / "models" / "net"
    folder.mkdir()
    (folder / "model.yaml").write_text(text)
    with pytest.raises(SpecError, match=message) as refused:
        load(folder, root)
    assert str(folder / "model.yaml") in refused.value.where
    assert not list(root.rglob("pwned"))


def test_a_pipe_is_no_spec(root: Path) -> None:
    """A model.yaml that would never end, or never begin, is refused before it is opened."""
    folder = root / "models" / "net"
    folder.mkdir()
    os.mkfifo(folder / "model.yaml")
    with pytest.raises(SpecError, match="it is not a regular file"):
        load(folder, root)
    (folder / "model.yaml").unlink()
    (folder / "model.yaml").symlink_to("/dev/zero")
    with pytest.raises(SpecError, match="it is not a regular file"):
        load(folder, root)


def test_aliases_of_a_persons_spec_are_read(root: Path) -> None:
    """The common use stays possible: one section written once."""
    folder = root / "models" / "net"
    folder.mkdir()
    (folder / "server.py").write_text("")
    (folder / "model.yaml").write_text(
        "name: net\nnetwork:\n  python: server.py\n  inputs: &both {x: {dtype: FP32, shape: [1]}}\n"
        "  outputs: {<<: *both}\n"
    )
    assert load(folder, root).model.network.outputs["x"].dtype == "FP32"
