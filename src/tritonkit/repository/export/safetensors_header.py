"""A check of the header of a `.safetensors` file, before any library trusts its sizes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError

__all__ = ["check_header"]

_MOST_HEADER_BYTES = 100_000_000
"""Largest header, the library's own bound."""


def check_header(file: Path) -> None:
    """Check that a file is as long as its header says, and each tensor as long as its shape requires.

    Raises:
        BuildError: the header is invalid, or the file has another size than the header says.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(size - 8, _MOST_HEADER_BYTES):
            raise _refused(file, f"a header of {length:,} bytes in a file of {size:,}")
        header = _header(file, stream.read(length))
    header.pop("__metadata__", None)
    ends = [_end(file, entry) for entry in header.values()]
    if 8 + length + max(ends, default=0) != size:
        raise _refused(file, f"weights up to byte {8 + length + max(ends, default=0):,} in a file of {size:,}")


def _header(file: Path, data: bytes) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _refused(file, f"a header that is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise _refused(file, f"a header that is a {type(header).__name__}")
    return header


def _end(file: Path, entry: Any) -> int:
    """End offset of a tensor, after a check that its bytes have room for its shape."""
    end, fits = 0, False
    try:
        shape = tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
        # An element has at least four bits.
        fits = whole and begin <= end and math.prod(shape) <= 2 * (end - begin)
    except (KeyError, TypeError, ValueError):
        pass
    if not fits:
        raise _refused(file, f"a tensor described as {str(entry)[:120]}")
    return end


def _refused(file: Path, found: str) -> BuildError:
    return BuildError(
        str(file),
        found=found,
        wanted="weights as safetensors writes them",
        todo="copy the file again: a truncated download looks like this",
    )
