"""Protobuf fields written one by one, for messages that no library would write."""

from __future__ import annotations

from tritonkit.client.wire.varint import varint

__all__ = ["number", "sized"]


def sized(field: int, content: bytes) -> bytes:
    """A field of bytes, of text or of another message, with its length."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def number(field: int, value: int) -> bytes:
    """A field of a whole number; a negative one takes ten bytes."""
    return varint(field << 3) + varint(value % (1 << 64))
