"""Keys in files that their owner alone can read: Ed25519 pairs that sign, 32 bytes that encrypt."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritonkit.errors import UsageError
from tritonkit.extras import need_package

__all__ = [
    "REQUIREMENT",
    "EncryptionKey",
    "fingerprint",
    "new_encryption_key",
    "new_signing_key",
    "read_encryption_key",
    "read_private",
    "read_public_key",
    "read_signing_key",
]

REQUIREMENT = "tritonkit[store]"
"""Requirement by which pip installs the libraries of this room."""

_KEY_BYTES = 32
_MOST_BYTES = 1 << 14


@dataclass(frozen=True)
class EncryptionKey:
    """A key of AES-256, from which the keys of blobs are derived; `file` is the file that it was read from."""

    file: Path
    secret: bytes = field(repr=False)


def new_encryption_key(file: Path) -> None:
    """Write 32 random bytes into a new file. UsageError if the file exists."""
    _write_new(file, secrets.token_bytes(_KEY_BYTES), 0o600)


def read_encryption_key(file: Path) -> EncryptionKey:
    """The key in a file. UsageError if others can read the file, or it does not have 32 bytes."""
    secret = read_private(file)
    if len(secret) != _KEY_BYTES:
        raise UsageError(
            str(file),
            found=f"it has {len(secret)} bytes",
            wanted=f"{_KEY_BYTES} bytes",
            todo="make a key: tritonkit backup --new-key FILE",
        )
    return EncryptionKey(file, secret)


def new_signing_key(file: Path) -> Path:
    """Write a private Ed25519 key (PKCS #8, PEM) into a new file and the public one into `FILE.pub`; returns that.

    UsageError if one of them exists.
    """
    ed25519, serialization = _ed25519(), _serialization()
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = file.with_name(f"{file.name}.pub")
    _write_new(file, private, 0o600)
    try:
        _write_new(public, _pem(key.public_key()), 0o644)
    except UsageError:
        file.unlink()
        raise
    return public


def read_signing_key(file: Path) -> Any:
    """An `Ed25519PrivateKey`. UsageError if others can read the file, or it holds no such key."""
    data = read_private(file)
    try:
        key = _serialization().load_pem_private_key(data, password=None)
    except Exception as error:  # of several kinds; they may quote what they were given
        raise _no_key(file, "private") from error
    if not isinstance(key, _ed25519().Ed25519PrivateKey):
        raise _no_key(file, "private")
    return key


def read_public_key(file: Path) -> Any:
    """An `Ed25519PublicKey`. UsageError if the file holds no such key."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES)
        key = _serialization().load_pem_public_key(data)
    except OSError as error:
        raise _unreadable(file, error) from error
    except Exception as error:
        raise _no_key(file, "public") from error
    if not isinstance(key, _ed25519().Ed25519PublicKey):
        raise _no_key(file, "public")
    return key


def fingerprint(public_key: Any) -> str:
    """A name for a public key: the first 16 hexadecimal digits of its PEM's SHA-256."""
    return hashlib.sha256(_pem(public_key)).hexdigest()[:16]


def _pem(public_key: Any) -> bytes:
    serialization = _serialization()
    data: bytes = public_key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return data


def _ed25519() -> Any:
    return need_package("cryptography.hazmat.primitives.asymmetric.ed25519", REQUIREMENT)


def _serialization() -> Any:
    return need_package("cryptography.hazmat.primitives.serialization", REQUIREMENT)


def _no_key(file: Path, kind: str) -> UsageError:
    return UsageError(
        str(file),
        found=f"it holds no {kind} Ed25519 key without a password",
        wanted=f"the {kind} one of a pair, as PEM",
        todo="make a pair: tritonkit sign --new-key FILE",
    )


def read_private(file: Path) -> bytes:
    """The content of a key file. UsageError if others can read it, or another user can write it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(file, error) from error
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise UsageError(str(file), found="it is not a file", wanted="a file with a key")
        if state.st_mode & 0o077 or state.st_uid not in (0, os.geteuid()):
            raise UsageError(
                str(file),
                found=f"others can read it: mode {stat.S_IMODE(state.st_mode):04o}, user {state.st_uid}",
                wanted="a key that its owner alone can read",
                todo=f"chmod 600 {file}; if others may have read it, make another",
            )
        return os.read(descriptor, _MOST_BYTES)
    except OSError as error:
        raise _unreadable(file, error) from error
    finally:
        os.close(descriptor)


def _unreadable(file: Path, error: OSError) -> UsageError:
    return UsageError(str(file), found=f"it cannot be read: {error.strerror}", wanted="a key file")


def _write_new(file: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise UsageError(
            str(file),
            found="it is there already",
            wanted="the name of a new file",
            todo="a key that is overwritten is lost, with all that it opens: name another",
        ) from error
    except OSError as error:
        raise UsageError(str(file), found=f"it cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            file.unlink()
        raise
