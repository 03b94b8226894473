"""Read UBJSON as XGBoost writes it: https://ubjson.org, with typed arrays as numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tritonkit.errors import UsageError

__all__ = ["read_ubjson"]

_NUMBERS = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
_LENGTHS = b"iUIlL"
_CONSTANTS = {b"T": True, b"F": False, b"Z": None}
_MAX_DEPTH = 64


def read_ubjson(data: bytes) -> Any:
    """The value of a document.

    Raises:
        UsageError: it is cut off, or not UBJSON; says at which byte.
    """
    reader = _Reader(data)
    value = reader.value(reader.marker(), 0)
    if reader.at != len(data):
        raise reader.refusal("bytes after the end of the document")
    return value


class _Reader:
    """A place in a document."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def refusal(self, found: str) -> UsageError:
        return UsageError(f"byte {self.at}", found=found, wanted="UBJSON", todo="save the model again")

    def take(self, count: int) -> bytes:
        """The next bytes; a length beyond the end reserves nothing."""
        if not 0 <= count <= len(self.data) - self.at:
            raise self.refusal(f"the file ends within a value of {count} bytes")
        self.at += count
        return self.data[self.at - count : self.at]

    def marker(self) -> bytes:
        """The next type, without no-ops."""
        while (marker := self.take(1)) == b"N":
            pass
        return marker

    def number(self, marker: bytes) -> Any:
        dtype = np.dtype(_NUMBERS[marker])
        return np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()

    def length(self, marker: bytes | None = None) -> int:
        marker = marker or self.take(1)
        if marker not in (b"i", b"U", b"I", b"l", b"L"):
            raise self.refusal(f"the type {marker!r} for a length")
        return int(self.number(marker))

    def text(self, marker: bytes | None = None) -> str:
        data = self.take(self.length(marker))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.refusal("a text that is not UTF-8") from None

    def value(self, marker: bytes, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise self.refusal(f"more than {_MAX_DEPTH} values within each other")
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _NUMBERS:
            return self.number(marker)
        if marker == b"C":
            return self.take(1).decode("latin-1")
        if marker in (b"S", b"H"):
            return self.text()
        if marker == b"[":
            return self.array(depth)
        if marker == b"{":
            return self.object(depth)
        raise self.refusal(f"the type {marker!r}")

    def header(self) -> tuple[bytes | None, int | None]:
        """Type and count of a container, where it says them."""
        kind = count = None
        if self.data[self.at : self.at + 1] == b"$":
            self.at += 1
            kind = self.take(1)
        if self.data[self.at : self.at + 1] == b"#":
            self.at += 1
            count = self.length()
            if not 0 <= count <= len(self.data) - self.at:
                raise self.refusal(f"the file ends within {count} values")
        elif kind is not None:
            raise self.refusal("a typed container without a count")
        return kind, count

    def array(self, depth: int) -> Any:
        kind, count = self.header()
        if kind is not None and count is not None:
            if kind not in _NUMBERS:
                raise self.refusal(f"an array of the type {kind!r}")
            dtype = np.dtype(_NUMBERS[kind])
            return np.frombuffer(self.take(count * dtype.itemsize), dtype).astype(dtype.newbyteorder("="))
        if count is not None:
            return [self.value(self.marker(), depth + 1) for _ in range(count)]
        values = []
        while (marker := self.marker()) != b"]":
            values.append(self.value(marker, depth + 1))
        return values

    def object(self, depth: int) -> dict[str, Any]:
        kind, count = self.header()
        if kind is not None:
            raise self.refusal("an object of one type")
        values: dict[str, Any] = {}
        while count is None or len(values) < count:
            marker = self.marker()
            if marker == b"}" and count is None:
                break
            name = self.text(marker)
            if name in values:
                raise self.refusal(f"the key {name!r} twice")
            values[name] = self.value(self.marker(), depth + 1)
        return values
