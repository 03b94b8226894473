"""Protobuf's pieces: numbers of variable length, tags, and fields (https://protobuf.dev/programming-guides/encoding/).

A field is a tag (its number and wire type) and a value: a varint, 4 or 8 bytes, or a length and that
many bytes. Readers raise `ValueError` or `IndexError` where the bytes end too early or make no sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

__all__ = [
    "FIXED32",
    "FIXED64",
    "SIZED",
    "VARINT",
    "Data",
    "fields",
    "flag",
    "number",
    "read_field",
    "read_signed",
    "read_varint",
    "sized",
    "text",
    "varint",
]

Data: TypeAlias = bytes | memoryview
"""What is read: indexing gives whole numbers."""

VARINT, FIXED64, SIZED, FIXED32 = 0, 1, 2, 5

_LONGEST = 10  # bytes of a 64-bit number, 7 bits in each
_SHORT = [bytes((value,)) for value in range(128)]


def varint(value: int) -> bytes:
    """A whole number from -2**63 to 2**64 - 1; a negative one takes ten bytes."""
    if 0 <= value < 128:
        return _SHORT[value]
    if value < 0:
        value += 1 << 64
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def sized(field: int, content: bytes) -> bytes:
    """A field of bytes or of another message, with its length."""
    return varint(field << 3 | SIZED) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """A field of text, nothing at all for the empty one, which is what a missing field means."""
    return sized(field, value.encode()) if value else b""


def number(field: int, value: int) -> bytes:
    """A field of a whole number; written also when it is 0."""
    return varint(field << 3 | VARINT) + varint(value)


def flag(field: int, value: bool) -> bytes:
    """A field of a truth value; written also when it is false."""
    return number(field, int(value))


def read_varint(data: Data, at: int) -> tuple[int, int]:
    """The number at `at`, below 2**64, and where the next field starts."""
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    for shift in range(7, 7 * _LONGEST, 7):
        at += 1
        byte = data[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + 1
    raise ValueError("a number longer than ten bytes")


def read_signed(data: Data, at: int) -> tuple[int, int]:
    """As `read_varint`, of a number that may be negative."""
    value, at = read_varint(data, at)
    return (value - (1 << 64) if value >> 63 else value), at


def fields(data: Data) -> Iterator[tuple[int, int, int]]:
    """Every field of a message: its tag, and where its value starts and ends."""
    at, end = 0, len(data)
    while at < end:
        tag, start, at = read_field(data, at)
        if at > end:
            raise ValueError("a field runs past the end of its message")
        yield tag, start, at


def read_field(data: Data, at: int) -> tuple[int, int, int]:
    """The tag of the field at `at`, and where its value starts and ends; the end is not checked."""
    tag, at = read_varint(data, at)
    kind = tag & 7
    if tag >> 3 == 0:
        raise ValueError("a field numbered 0")
    if kind == SIZED:
        size, at = read_varint(data, at)
        return tag, at, at + size
    if kind == VARINT:
        return tag, at, read_varint(data, at)[1]
    if kind == FIXED64:
        return tag, at, at + 8
    if kind == FIXED32:
        return tag, at, at + 4
    raise ValueError(f"a field of wire type {kind}")
