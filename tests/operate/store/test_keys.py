"""Key files: made once, for their owner alone, and refused where others can read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tritonkit.errors import UsageError
from tritonkit.operate.store import keys


def test_a_new_pair_signs_and_verifies(tmp_path: Path) -> None:
    """The private file is its owner's alone, the public one is not secret, and they belong together."""
    private = tmp_path / "key"
    public = keys.new_signing_key(private)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert public == tmp_path / "key.pub"
    signing, verifying = keys.read_signing_key(private), keys.read_public_key(public)
    verifying.verify(signing.sign(b"text"), b"text")
    assert keys.fingerprint(verifying) == keys.fingerprint(signing.public_key())


def test_a_new_encryption_key_has_32_bytes(tmp_path: Path) -> None:
    """They are other ones each time, for the owner alone, and never shown."""
    for name in ("a", "b"):
        keys.new_encryption_key(tmp_path / name)
    first, second = (keys.read_encryption_key(tmp_path / name) for name in ("a", "b"))
    assert len(first.secret) == 32
    assert first.secret != second.secret
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert repr(first.secret) not in repr(first)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
@pytest.mark.parametrize("kind", ["signing", "encryption"])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int, kind: str) -> None:
    """Also where only the group can; the error says how to close it."""
    file = tmp_path / "key"
    getattr(keys, f"new_{kind}_key")(file)
    file.chmod(mode)
    with pytest.raises(UsageError, match=f"mode {mode:04o}") as caught:
        getattr(keys, f"read_{kind}_key")(file)
    assert f"chmod 600 {file}" in caught.value.todo


@pytest.mark.needs("root")
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    """The owner of the file can replace it."""
    keys.new_encryption_key(tmp_path / "key")
    os.chown(tmp_path / "key", 12345, 12345)
    with pytest.raises(UsageError, match="user 12345"):
        keys.read_encryption_key(tmp_path / "key")


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    """Neither of a pair: where the public file is there already, no private one is left."""
    keys.new_encryption_key(tmp_path / "key")
    before = (tmp_path / "key").read_bytes()
    for make in (keys.new_encryption_key, keys.new_signing_key):
        with pytest.raises(UsageError, match="it is there already"):
            make(tmp_path / "key")
    assert (tmp_path / "key").read_bytes() == before
    (tmp_path / "pair.pub").touch()
    with pytest.raises(UsageError, match=r"pair\.pub: it is there already"):
        keys.new_signing_key(tmp_path / "pair")
    assert not (tmp_path / "pair").exists()


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    """Another file, another kind of key, a folder, a pipe, nothing: nothing of the content is shown."""
    private = tmp_path / "key"
    public = keys.new_signing_key(private)
    keys.new_encryption_key(tmp_path / "short")
    (tmp_path / "short").write_bytes(b"secret")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for read, file, problem in (
        (keys.read_signing_key, tmp_path / "short", "no private Ed25519 key"),
        (keys.read_public_key, private, "no public Ed25519 key"),
        (keys.read_public_key, tmp_path / "no", "cannot be read"),
        (keys.read_encryption_key, tmp_path / "short", "it has 6 bytes"),
        (keys.read_encryption_key, tmp_path / "no", "cannot be read"),
        (keys.read_encryption_key, tmp_path / "pipe", "it is not a file"),
        (keys.read_signing_key, tmp_path, "it is not a file"),
    ):
        with pytest.raises(UsageError, match=problem) as caught:
            read(file)
        assert "secret" not in str(caught.value)
    public.chmod(0o600)
    with pytest.raises(UsageError, match="no private Ed25519 key"):
        keys.read_signing_key(public)
