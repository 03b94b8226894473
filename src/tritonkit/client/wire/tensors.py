"""Triton's datatypes as numpy arrays, and as the bytes that travel.

Names and layouts are those of Triton's binary tensor data extension
(https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md):
row-major, little-endian; a BYTES element is a 4-byte length and that many bytes; a BF16 element is
the upper half of a float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.datatypes import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["FIXED", "from_raw", "to_raw", "wire_array"]

FIXED: dict[str, np.dtype[Any]] = {
    name: np.dtype(np.dtype(numpy).newbyteorder("<").str) for name, numpy in NUMPY_DTYPES.items()
}
"""The datatypes numpy has a type for, little-endian."""


def to_raw(array: NDArray[Any], datatype: str) -> bytes:
    """Write an array as Triton reads it; `wire_array` says which arrays fit.

    Raises:
        ValueError: the datatype is unknown, or the array is of another type.
    """
    if datatype == "BYTES" and array.dtype.kind == "O":
        return _pack_bytes(array)
    return wire_array(array, datatype).tobytes()


def wire_array(array: NDArray[Any], datatype: str) -> NDArray[Any]:
    """The array whose memory is what Triton reads: `array` itself where it already lies so.

    Args:
        array: any shape, byte order and strides; of the type in `FIXED`, or float32 for BF16 (rounded
            to nearest even), or an object array of bytes for BYTES.
        datatype: a name of `tritonkit.datatypes.DATATYPES`.

    Returns:
        A contiguous array, for `memoryview`, `b"".join` or copying into another; in the array's own
        shape, but of bytes in a row for BYTES.

    Raises:
        ValueError: the datatype is unknown, or the array is of another type.
    """
    kind = array.dtype.kind
    if datatype == "BYTES" and kind == "O":
        return np.frombuffer(_pack_bytes(array), np.uint8)
    if datatype == "BF16" and kind == "f":
        return _bf16_bits(array)
    dtype = FIXED.get(datatype)
    if dtype is None or array.dtype.newbyteorder("<") != dtype:
        raise ValueError(f"an array of {array.dtype.name} is no {datatype} tensor")
    # Not ascontiguousarray: that makes one axis of none.
    return array.astype(dtype, order="C", copy=False)


def from_raw(raw: bytes | memoryview, datatype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Read what Triton wrote, without copying where numpy can look at the bytes as they are.

    Returns:
        A read-only view of `raw` in `shape`; BF16 comes back as float32, BYTES as an object array
        of bytes.

    Raises:
        ValueError: the datatype is unknown, or the bytes do not fill the shape exactly.
    """
    dtype = FIXED.get(datatype)
    if dtype is not None:
        array = np.frombuffer(raw, dtype).reshape(shape)
    elif datatype == "BF16":
        bits = np.frombuffer(raw, "<u2").astype("<u4")
        array = (bits << 16).view("<f4").reshape(shape)
    elif datatype == "BYTES":
        array = _unpack_bytes(bytes(raw)).reshape(shape)
    else:
        raise ValueError(f"unknown datatype {datatype!r}")
    array.flags.writeable = False
    return array


def _bf16_bits(array: NDArray[Any]) -> NDArray[Any]:
    bits = np.ascontiguousarray(array, "<f4").view("<u4")
    # Half of the last kept bit, and one less when that bit is already even: nearest, ties to even.
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    # Rounding could carry a NaN into infinity: set the quiet bit instead.
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(array), quiet, rounded).astype("<u2").reshape(array.shape)


def _pack_bytes(cells: NDArray[Any]) -> bytes:
    parts: list[bytes] = []
    for cell in cells.flat:
        parts += (len(cell).to_bytes(4, "little"), cell)
    return b"".join(parts)


def _unpack_bytes(raw: bytes) -> NDArray[Any]:
    cells: list[bytes] = []
    at, end = 0, len(raw)
    while at < end:
        start = at + 4
        at = start + int.from_bytes(raw[at:start], "little")
        if at > end or start > end:
            raise ValueError(f"a BYTES element runs past the end of {end} bytes")
        cells.append(raw[start:at])
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array
