"""The admin key of a run. It opens the calls that load models, and so run code, and those that show internals.

Triton takes the key only as an argument, and every user of a machine can read the arguments of its
processes. So the arguments hold PLACEHOLDER, and the native guard (python_backends/native) replaces it
inside the process by the key, which it reads from a pipe.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

__all__ = ["HEADER", "PLACEHOLDER", "new_key", "write_private"]

HEADER = "admin-key"
"""The HTTP header; over gRPC the metadata `triton-grpc-protocol-admin-key`."""

PLACEHOLDER = "{admin-key}"


def new_key() -> str:
    """192 random bits in hexadecimal."""
    return secrets.token_hex(24)


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically and synced to disk; it replaces an existing one.

    Raises:
        OSError: an error with the file's name; the old file is unchanged.
    """
    new = file.with_name(f".{file.name}.new")
    try:
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        error.filename, error.filename2 = str(file), None
        raise
