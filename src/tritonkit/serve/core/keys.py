"""The admin key of a run: what may load models, which is to run code, and read what is not for everyone.

Triton takes the key only as an argument, and every user of a machine can read the arguments of its
processes. So the arguments hold PLACEHOLDER, and the native guard (python_backends/native) exchanges it
inside the process for the key, which it reads from a pipe.
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
    """Write a file that its owner alone can read, whole and on the disk itself, in place of one there is.

    Raises:
        OSError: with the file's name; the one that was there still is.
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
