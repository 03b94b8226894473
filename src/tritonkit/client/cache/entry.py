"""One cached answer: read-only, and its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Entry", "frozen", "size_of"]

_ENTRY_BYTES = 600
"""What an answer takes beside its data, about: key, tuple, dictionary, the cache's own links."""
_ARRAY_BYTES = 250
_CELL_BYTES = 41
"""A `bytes` object of no bytes and the reference to it, in CPython."""


class Entry(NamedTuple):
    """An answer: who gave it, and its outputs in the server's order.

    Arrays are as a reply has them: numeric or bool arrays (float32 for BF16), object arrays of bytes
    for BYTES.
    """

    model: str
    version: str
    outputs: Mapping[str, NDArray[Any]]


def frozen(entry: Entry) -> Entry:
    """The same answer in memory of its own, read-only.

    A copy, since an output may be a small view of a large message that would stay with it.
    """
    outputs = {name: _frozen(array) for name, array in entry.outputs.items()}
    return Entry(entry.model, entry.version, outputs)


def size_of(entry: Entry) -> int:
    """Bytes an answer takes, about."""
    return _ENTRY_BYTES + sum(map(_array_bytes, entry.outputs.values()))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "O":
        copy = array.copy()
        copy.flags.writeable = False
        return copy
    # Over bytes, which cannot be made writeable again, as a caller could an array that owns its memory.
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def _array_bytes(array: NDArray[Any]) -> int:
    if array.dtype.kind == "O":
        return _ARRAY_BYTES + sum(_CELL_BYTES + len(cell) for cell in array.flat)
    return _ARRAY_BYTES + array.nbytes
