"""Protobuf's pieces: numbers of variable length, tags, and fields (https://protobuf.dev/programming-guides/encoding/).

A field is a tag (its number and wire type) and a value: a varint, 4 or 8 bytes, or a length and that
many bytes. Readers raise `ValueError` or `IndexError` where the bytes end too early or make no sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

__all__ = ["Data", "fields", "read_field", "read_varint", "varint"]

Data: TypeAlias = bytes | memoryview
"""Bytes to read: indexing gives whole numbers."""

_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5

_LONGEST = 10  # bytes of a 64-bit number, 7 bits in each
_LONGEST_TAG, _TAGS = 5, 1 << 32  # a tag has 32 bits
_SHORT = [bytes((value,)) for value in range(128)]


def varint(value: int) -> bytes:
    """A whole number from 0 to 2**64 - 1."""
    if value < 128:
        return _SHORT[value]
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


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
    tag, start = read_varint(data, at)
    if start - at > _LONGEST_TAG or tag >= _TAGS:
        raise ValueError("a tag of more than 32 bits")
    kind, at = tag & 7, start
    if tag >> 3 == 0:
        raise ValueError("a field numbered 0")
    if kind == _SIZED:
        size, at = read_varint(data, at)
        return tag, at, at + size
    if kind == _VARINT:
        return tag, at, read_varint(data, at)[1]
    if kind == _FIXED64:
        return tag, at, at + 8
    if kind == _FIXED32:
        return tag, at, at + 4
    raise ValueError(f"a field of wire type {kind}")
