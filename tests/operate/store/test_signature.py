"""A signed repository: whatever was changed, added or taken away afterwards is found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import failed
from tests.cli.running import tritonkit_here as tritonkit
from tests.repository.publish.damaging import flip
from tests.repository.publish.test_publish import HEADER
from tritonkit.errors import PublishError, ServerError, UsageError
from tritonkit.operate.store import check, sign
from tritonkit.operate.store.contents import read_contents
from tritonkit.operate.store.keys import new_signing_key, read_public_key, read_signing_key
from tritonkit.operate.store.signature import FILE, parse, read
from tritonkit.repository.publish import Damage


@pytest.fixture
def signing(tmp_path: Path) -> Any:
    """A private key, with its public key next to it."""
    new_signing_key(tmp_path / "key")
    return read_signing_key(tmp_path / "key")


@pytest.fixture
def signed(repository: Path, signing: Any) -> Path:
    """A repository with a model of somebody else's, signed."""
    (repository / "mine" / "1").mkdir(parents=True)
    (repository / "mine" / "config.pbtxt").write_text('name: "mine"\n')
    (repository / "mine" / "1" / "model.py").write_text("# by hand\n")
    sign(repository, signing)
    return repository


def findings(repository: Path, *models: str, key: str = "key") -> list[Damage]:
    """Findings of a check with the public key."""
    public = read_public_key(repository.parent / f"{key}.pub")
    contents = read_contents(repository, models)
    return check(contents, read(repository), public, repository, models)


def test_what_was_signed_is_found_good(signed: Path) -> None:
    """Models of others are signed too; signing again gives the same signature."""
    assert findings(signed) == []
    assert findings(signed, "net") == []
    signature = parse(read(signed) or "")
    assert sorted(signature.models) == ["mine", "net", "other"]
    before = (signed / FILE).read_bytes()
    sign(signed, read_signing_key(signed.parent / "key"))
    assert (signed / FILE).read_bytes() == before


def edit(file: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON file."""
    facts = json.loads(file.read_text())
    change(facts)
    file.write_text(json.dumps(facts))


CHANGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a changed file": (lambda r: flip(r / "net" / "1" / "model.onnx"), "net/1/model.onnx", "sha256"),
    "a changed configuration": (
        lambda r: (r / "net" / "config.pbtxt").write_text(HEADER + "# other"),
        "net/config.pbtxt",
        "sha256",
    ),
    "a changed manifest": (
        lambda r: edit(r / "net" / "1" / "manifest.json", lambda facts: facts.update(quality=1)),
        "net/1/manifest.json",
        "sha256",
    ),
    "a file of somebody's own model": (
        lambda r: (r / "mine" / "1" / "model.py").write_text("x"),
        "mine/1/model.py",
        "sha256",
    ),
    "a missing file": (lambda r: (r / "net" / "warmup" / "sample").unlink(), "net/warmup/sample", "missing"),
    "an added file": (lambda r: (r / "net" / "1" / "x.py").touch(), "net/1/x.py", "added after signing"),
    "an added version": (
        lambda r: shutil.copytree(r / "mine" / "1", r / "mine" / "2"),
        "mine/2/model.py",
        "added after signing",
    ),
    "a missing model": (lambda r: shutil.rmtree(r / "other"), "other", "the model is missing"),
    "an added model": (lambda r: shutil.copytree(r / "net", r / "third"), "third", "was added"),
    "an added model without configuration": (
        lambda r: ((r / "third" / "1").mkdir(parents=True), (r / "third" / "1" / "model.py").touch()),
        "third",
        "was added",
    ),
    "no signature": (lambda r: (r / FILE).unlink(), FILE, "there is no signature"),
    "an invalid signature": (lambda r: (r / FILE).write_text("{}"), FILE, "it is not a valid signature"),
    "a deep signature": (lambda r: (r / FILE).write_text("[" * 100_000), FILE, "nested too deeply"),
    "a changed statement": (
        lambda r: edit(r / FILE, lambda facts: facts["models"].pop("other")),
        FILE,
        "does not hold",
    ),
    "a changed signature": (
        lambda r: edit(r / FILE, lambda facts: facts.update(signature="A" * 86 + "==")),
        FILE,
        "does not hold",
    ),
    "a signature that is not base64": (
        lambda r: edit(r / FILE, lambda facts: facts.update(signature="?")),
        FILE,
        "it is not a valid signature",
    ),
    "another key's name": (lambda r: edit(r / FILE, lambda facts: facts.update(key="0" * 16)), FILE, "another key"),
    "a path that leads elsewhere": (
        lambda r: edit(r / FILE, lambda facts: facts["models"]["net"].update({"../x": "0" * 64})),
        FILE,
        "it is not a valid signature",
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_found_and_named(signed: Path, kind: str) -> None:
    """One finding, with the file, what was found, what was wanted and what to do."""
    do, file, problem = CHANGES[kind]
    do(signed)
    [finding] = findings(signed)
    assert finding.file == signed / file
    assert problem in finding.found
    assert finding.wanted
    assert "tritonkit sign" in finding.todo


def test_a_changed_file_with_a_changed_manifest_is_found(signed: Path) -> None:
    """`verify` alone cannot see it: anyone who can write the repository can write its manifests."""
    file = signed / "net" / "1" / "model.onnx"
    file.write_bytes(b"bad")
    edit(signed / "net" / "1" / "manifest.json", lambda facts: facts["sizes"].update({"model.onnx": 3}))
    assert {f.file.name for f in findings(signed)} == {"model.onnx", "manifest.json"}


def test_another_pair_does_not_do(signed: Path) -> None:
    """Neither when it verifies nor when it has signed."""
    new_signing_key(signed.parent / "other-key")
    [finding] = findings(signed, key="other-key")
    assert "another key" in finding.found
    sign(signed, read_signing_key(signed.parent / "other-key"))
    [finding] = findings(signed)
    assert "another key" in finding.found
    assert findings(signed, key="other-key") == []


def test_named_models_alone_are_looked_at(signed: Path) -> None:
    """A change elsewhere is no finding; one in them is."""
    flip(signed / "other" / "1" / "model.onnx")
    assert findings(signed, "net") == []
    assert [f.model for f in findings(signed, "net", "other")] == ["other"]


def test_only_what_is_whole_is_signed(repository: Path, signing: Any, tmp_path: Path) -> None:
    """A damaged repository, or none, is refused, and no signature is left."""
    flip(repository / "net" / "1" / "model.onnx")
    with pytest.raises(ServerError, match=r"model\.onnx: sha256"):
        sign(repository, signing)
    assert read(repository) is None
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no model in it"):
        sign(tmp_path / "empty", signing)


@pytest.mark.parametrize(
    ("name", "code"), [(FILE, 4), ("net/manifest.json", 2), ("net/config.pbtxt", 2), ("net/1/model.onnx", 2)]
)
def test_a_pipe_in_a_repository_is_refused(signed: Path, name: str, code: int) -> None:
    """In the place of any file that is read before its hash is known; nothing waits for it."""
    (signed / name).unlink()
    os.mkfifo(signed / name)
    words = ("--repository", str(signed), "--public-key", str(signed.parent / "key.pub"))
    assert name.rpartition("/")[2] in failed(tritonkit("verify", *words), code)


def test_a_signature_that_cannot_be_written(repository: Path, signing: Any) -> None:
    """The error is that of the repository."""
    (repository / f"{FILE}.unfinished").mkdir()
    with pytest.raises(PublishError, match="cannot be written"):
        sign(repository, signing)
