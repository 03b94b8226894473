"""An answer as bytes for Redis, and back: a plain layout of our own, never pickle, nothing executed.

Little-endian, in this order:

| bytes | what |
|---|---|
| 4 | `TKPC` |
| 2 | version of this layout |
| 16 | blake2b of all that follows |
| 33 | the key it was stored under |
| | model, version: each a length (4 bytes) and UTF-8 |
| 4 | how many outputs |
| | each output: name, datatype (as above), number of axes (4), axes (8 each), data length (8) |
| | each output's data as Triton sends it, starting at a multiple of 16 |
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from math import prod
from typing import Any

from numpy.typing import NDArray

from tritonkit.client.cache.entry import Kept
from tritonkit.client.cache.keys import KEY_BYTES
from tritonkit.wire.tensors import FIXED, from_raw, to_raw

__all__ = ["decode", "encode"]

_MAGIC = b"TKPC"
_LAYOUT = 1
_START = struct.Struct("<4sH16s")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_ALIGNMENT = 16
_MOST_AXES = 32
_NAMES = {dtype: name for name, dtype in FIXED.items()}


def encode(kept: Kept, key: bytes) -> bytes:
    """An answer as bytes, bound to its key.

    Raises:
        ValueError: an array is of a type Triton does not have.
    """
    heads: list[bytes] = [key, _text(kept.model), _text(kept.version), _U32.pack(len(kept.outputs))]
    datas: list[bytes] = []
    for name, array in kept.outputs.items():
        datatype = _datatype(array)
        data = to_raw(array, datatype)
        axes = struct.pack(f"<I{array.ndim}Q", array.ndim, *array.shape)
        heads += [_text(name), _text(datatype), axes, _U64.pack(len(data))]
        datas.append(data)
    body = b"".join(_aligned(b"".join(heads), datas))
    return _START.pack(_MAGIC, _LAYOUT, _checksum(body)) + body


def decode(data: bytes, key: bytes) -> Kept | None:
    """The answer, or None for bytes that are not one stored under this key: cut, changed, foreign, newer.

    Numeric arrays are read-only views of `data`.
    """
    try:
        magic, layout, checksum = _START.unpack_from(data)
        if magic != _MAGIC or layout != _LAYOUT or checksum != _checksum(data[_START.size :]):
            return None
        return _Reader(data, _START.size).kept(key)
    except (struct.error, ValueError):  # UnicodeDecodeError is a ValueError
        return None


class _Reader:
    """Reads on from a place in the bytes; a `ValueError` or `struct.error` says that they are wrong."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def kept(self, key: bytes) -> Kept | None:
        """The whole answer; None if it is another key's."""
        if self._take(KEY_BYTES) != key:
            return None
        model, version = self._text(), self._text()
        specs = [self._spec() for _ in range(self._number(_U32))]
        outputs = {spec[0]: self._array(*spec[1:]) for spec in specs}
        if self._at != len(self._data) or len(outputs) != len(specs):
            raise ValueError("more or less than an answer")
        return Kept(model, version, outputs)

    def _spec(self) -> tuple[str, str, tuple[int, ...], int]:
        name, datatype, ndim = self._text(), self._text(), self._number(_U32)
        if ndim > _MOST_AXES:
            raise ValueError("more axes than an array has")
        shape = tuple(self._number(_U64) for _ in range(ndim))
        return name, datatype, shape, self._number(_U64)

    def _array(self, datatype: str, shape: tuple[int, ...], length: int) -> NDArray[Any]:
        self._at += -self._at % _ALIGNMENT
        start, end = self._at, self._at + length
        if end > len(self._data) or not (prod(shape) <= length or 0 in shape):
            raise ValueError("shorter than it says")
        self._at = end
        # The cells of BYTES are slices: of bytes they are bytes.
        data = self._data if datatype == "BYTES" else memoryview(self._data)
        array = from_raw(data[start:end], datatype, shape)
        if array.flags.writeable:  # BYTES, of objects of its own
            array.flags.writeable = False
        return array

    def _take(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise ValueError("shorter than it says")
        return self._data[start : self._at]

    def _text(self) -> str:
        return self._take(self._number(_U32)).decode()

    def _number(self, form: struct.Struct) -> int:
        number: int = form.unpack(self._take(form.size))[0]
        return number


def _datatype(array: NDArray[Any]) -> str:
    if array.dtype.kind == "O":
        return "BYTES"
    try:
        return _NAMES[array.dtype.newbyteorder("<")]
    except KeyError:
        raise ValueError(f"Triton has no type for an array of {array.dtype.name}") from None


def _aligned(head: bytes, datas: list[bytes]) -> list[bytes]:
    parts, at = [head], _START.size + len(head)
    for data in datas:
        gap = -at % _ALIGNMENT
        parts += [bytes(gap), data]
        at += gap + len(data)
    return parts


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _text(text: str) -> bytes:
    data = text.encode()
    return _U32.pack(len(data)) + data
