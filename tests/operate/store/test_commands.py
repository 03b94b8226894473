"""`tritonkit sign`, `verify --public-key`, `backup` and `restore` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.cli.running import failed
from tests.cli.running import tritonkit as tritonkit_process
from tests.cli.running import tritonkit_here as tritonkit
from tests.operate.store.trees import tree
from tests.repository.publish.damaging import flip


@pytest.fixture
def private(tmp_path: Path) -> str:
    """A private key that a command has made; the public one is FILE.pub."""
    file = tmp_path / "key"
    done = tritonkit("sign", "--new-key", str(file))
    assert done.returncode == 0, done.stderr
    assert file.read_text() not in done.stdout + done.stderr
    return str(file)


def ran(*arguments: str) -> str:
    """Standard output of a command that must have worked."""
    done = tritonkit(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_signing_and_verifying(repository: Path, private: str) -> None:
    """A signed repository passes; a file that was changed together with its manifest does not: exit code 4."""
    at = ("--repository", str(repository))
    message = failed(tritonkit("verify", *at, "--public-key", f"{private}.pub"), 4)
    assert "there is no signature" in message
    assert json.loads(ran("sign", "--key", private, *at, "--json"))["models"] == ["net", "other"]
    assert ran("verify", *at, "--public-key", f"{private}.pub") == ""
    manifest = repository / "net" / "1" / "manifest.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(facts))
    assert ran("verify", *at) == ""
    message = failed(tritonkit("verify", *at, "--public-key", f"{private}.pub"), 4)
    assert f"{manifest}: sha256" in message
    assert "do: restore the repository" in message
    done = tritonkit("verify", *at, "--public-key", f"{private}.pub", "--json")
    assert [f["file"] for f in json.loads(done.stdout)["findings"]] == [str(manifest)]


def test_a_changed_file_is_told_once(repository: Path, private: str) -> None:
    """Its manifest and the signature find the same."""
    at = ("--repository", str(repository))
    ran("sign", "--key", private, *at)
    flip(repository / "net" / "1" / "model.onnx")
    done = tritonkit("verify", *at, "--public-key", f"{private}.pub", "--json")
    assert done.returncode == 4
    assert len(json.loads(done.stdout)["findings"]) == 1


def test_keys_that_cannot_be_used(repository: Path, private: str) -> None:
    """No key, two, one that others can read, one of the other kind: exit code 2."""
    at = ("--repository", str(repository))
    assert "--key FILE or --new-key FILE" in failed(tritonkit("sign", *at), 2)
    both = ("--key", private, "--new-key", "x")
    assert "--key FILE or --new-key FILE" in failed(tritonkit("sign", *at, *both), 2)
    assert "holds no public Ed25519" in failed(tritonkit("verify", *at, "--public-key", private), 2)
    assert "it is there already" in failed(tritonkit("sign", "--new-key", private), 2)
    Path(private).chmod(0o644)
    assert "others can read it" in failed(tritonkit("sign", *at, "--key", private), 2)


def test_backing_up_and_restoring(repository: Path, private: str, tmp_path: Path) -> None:
    """The ID is printed and restores; the list shows what there is; all of it encrypted and signed."""
    at, url = ("--repository", str(repository)), str(tmp_path / "store")
    encryption = ("--encryption-key", str(tmp_path / "encryption-key"))
    ran("backup", "--new-key", encryption[1])
    ran("sign", "--key", private, *at)
    first = ran("backup", url, *at, *encryption).strip()
    facts = json.loads(ran("backup", url, "other", *at, *encryption, "--json"))
    assert (facts["models"], facts["copied_files"]) == (["other"], 0)
    listed = ran("backup", url, "--list", *encryption)
    assert first in listed
    assert "encrypted, signed" in listed
    assert "net, other" in listed
    facts = json.loads(ran("backup", url, "--list", "--json"))
    assert [backup["problem"] for backup in facts["backups"]] == ["encrypted", "encrypted"]
    out = tmp_path / "new"
    options = (*encryption, "--public-key", f"{private}.pub", "--as-of", first)
    output = ran("restore", url, "--repository", str(out), *options)
    assert output.splitlines() == ["net: restored", "other: restored"]
    assert tree(out) == tree(repository)
    facts = json.loads(ran("restore", url, "--repository", str(out), *options, "--json"))
    assert facts["models"] == {"net": "unchanged", "other": "unchanged"}
    assert facts["backup"] == first


def test_refusals_have_exit_codes(repository: Path, tmp_path: Path) -> None:
    """2 for the command line, 3 for the target, 4 for the repository, 5 for the store; `--json` gives an object."""
    at, url = ("--repository", str(repository)), str(tmp_path / "store")
    assert "no store is named" in failed(tritonkit("backup", *at), 2)
    assert "no store of the kind" in failed(tritonkit("backup", "s4://x", *at), 2)
    assert "no such folder" in failed(tritonkit("backup", url, "--repository", "/no/such"), 2)
    assert "it holds no backups" in failed(tritonkit("restore", url, *at), 2)
    ran("backup", url, *at)
    assert "no such backup" in failed(tritonkit("restore", url, *at, "--as-of", "1999"), 2)
    message = failed(tritonkit("restore", url, "--repository", "/proc/x", "--memory-only"), 2)
    assert "not in memory" in message
    assert "cannot be made" in failed(tritonkit("restore", url, "--repository", "/proc/x"), 3)
    flip(repository / "net" / "1" / "model.onnx")
    assert "net/1/model.onnx: sha256" in failed(tritonkit("backup", url, *at), 4)
    for blob in (tmp_path / "store" / "blobs").rglob("*"):
        if blob.is_file():
            blob.unlink()
    message = failed(tritonkit("restore", url, *at, "--json"), 5)
    assert "missing from the store" in json.loads(message)["found"]


class Interrupting(MemoryFileSystem):
    """A store during whose writing Ctrl-C is pressed."""

    protocol = "interrupting"

    def _open(self, path: str, mode: str = "rb", **kwargs: object) -> object:
        if "w" in mode:
            raise KeyboardInterrupt
        return super()._open(path, mode, **kwargs)


def test_ctrl_c_ends_with_130(repository: Path) -> None:
    """It says that the same command goes on."""
    fsspec.register_implementation("interrupting", Interrupting, clobber=True)
    done = tritonkit("backup", "interrupting://x/y", "--repository", str(repository))
    assert done.returncode == 130
    assert "the same command goes on where this ended" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_of_its_own(repository: Path, tmp_path: Path) -> None:
    """The installed program, from another folder with a relative store: one process writes, the next one reads."""
    at = ("--repository", str(repository))
    done = tritonkit_process("backup", "store", *at, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "were copied" in done.stderr
    listed = json.loads(ran("backup", str(tmp_path / "store"), "--list", "--json"))
    assert listed["backups"][0]["id"] == done.stdout.strip()
