"""Tensors that came as typed fields (`InferTensorContents`), as some servers answer.

Triton sends raw bytes; the protocol allows this too, with one repeated field for each kind of number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.datatypes import DATATYPES
from tritonkit.wire.tensors import FIXED
from tritonkit.wire.varint import FIXED32, FIXED64, SIZED, VARINT, fields, read_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["typed_array"]

_AT_ONCE = 64 * 1024
"""Numbers that are Python objects at a time: those take many times what the array does."""


def typed_array(contents: bytes, datatype: str, shape: Sequence[int]) -> NDArray[Any]:
    """A read-only array of the elements in an encoded `InferTensorContents`.

    Raises:
        ValueError: or `IndexError`: the bytes are no such message, do not fill the shape, or hold
            numbers the datatype cannot; or the datatype has no field there.
    """
    known = DATATYPES.get(datatype)
    field = known.contents_field if known is not None else None
    if field is None:
        raise ValueError(f"no raw bytes for a tensor of datatype {datatype!r}")
    if datatype == "BYTES":
        array = _texts(contents, field)
    elif datatype in ("FP32", "FP64"):
        array = _floats(contents, field, FIXED[datatype])
    else:
        array = _numbers(contents, field, FIXED[datatype])
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _texts(contents: bytes, field: int) -> NDArray[Any]:
    wanted = field << 3 | SIZED
    cells = [contents[start:end] for tag, start, end in fields(contents) if tag == wanted]
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def _floats(contents: bytes, field: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Elements packed into one field, or each in a field of its own."""
    single = field << 3 | (FIXED32 if dtype.itemsize == 4 else FIXED64)
    wanted = (single, field << 3 | SIZED)
    parts = [contents[start:end] for tag, start, end in fields(contents) if tag in wanted]
    return np.frombuffer(b"".join(parts), dtype)


def _numbers(contents: bytes, field: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    found: list[int] = []
    parts: list[NDArray[Any]] = []
    for tag, at, end in fields(contents):
        if tag not in (field << 3 | VARINT, field << 3 | SIZED):
            continue
        while at < end:
            value, at = read_varint(contents, at)
            found.append(value)
            if len(found) == _AT_ONCE:
                parts.append(_of_type(np.array(found, np.uint64), dtype))
                found.clear()
        if at > end:
            raise ValueError("a number runs past the end of its field")
    parts.append(_of_type(np.array(found, np.uint64), dtype))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _of_type(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind == "b":
        return numbers.astype(dtype)
    # A negative number travels as its 64-bit two's complement.
    whole = numbers.view(np.int64) if dtype.kind == "i" else numbers
    array = whole.astype(dtype)
    if not np.array_equal(array, whole):
        raise ValueError(f"numbers past the range of {dtype.name}")
    return array
