"""Triton's datatypes as numpy arrays, and as the bytes that travel.

Names and layouts are those of Triton's binary tensor data extension
(https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md):
row-major, little-endian; a BYTES element is a 4-byte length and that many bytes; a BF16 element is
the upper half of a float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["DATATYPES", "FIXED", "from_raw", "to_raw"]

FIXED: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""The datatypes numpy has a type of its own for."""

DATATYPES = (*FIXED, "BF16", "BYTES")


def to_raw(array: NDArray[Any], datatype: str) -> bytes:
    """Write an array as Triton reads it.

    Args:
        array: any shape; of the type in `FIXED`, or float32 for BF16 (rounded to nearest even), or
            an object array of bytes for BYTES.
        datatype: one of `DATATYPES`.
    """
    if datatype == "BYTES":
        return _pack_bytes(array.ravel())
    if datatype == "BF16":
        return _bf16_bits(array).tobytes()
    return array.tobytes()


def from_raw(raw: bytes, datatype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Read what Triton wrote, without copying where numpy can look at the bytes as they are.

    Returns:
        A read-only view of `raw` in `shape`; BF16 comes back as float32, BYTES as an object array
        of bytes.

    Raises:
        ValueError: the datatype is unknown, or the bytes do not fill the shape exactly.
    """
    dtype = FIXED.get(datatype)
    if dtype is not None:
        return np.frombuffer(raw, dtype).reshape(shape)
    if datatype == "BF16":
        bits = np.frombuffer(raw, "<u2").astype("<u4")
        return (bits << 16).view("<f4").reshape(shape)
    if datatype == "BYTES":
        return _unpack_bytes(raw).reshape(shape)
    raise ValueError(f"unknown datatype {datatype!r}")


def _bf16_bits(array: NDArray[Any]) -> NDArray[Any]:
    bits = np.ascontiguousarray(array, "<f4").view("<u4")
    # Half of the last kept bit, and one less when that bit is already even: nearest, ties to even.
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    # Rounding could carry a NaN into infinity: set the quiet bit instead.
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(array), quiet, rounded).astype("<u2")


def _pack_bytes(cells: NDArray[Any]) -> bytes:
    parts: list[bytes] = []
    for cell in cells:
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
