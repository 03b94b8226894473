"""Parameters of requests, tensors and answers: maps from names to `InferParameter`."""

from __future__ import annotations

import struct
from typing import TypeAlias

from tritonkit.wire.varint import (
    FIXED64,
    SIZED,
    VARINT,
    fields,
    flag,
    number,
    read_signed,
    read_varint,
    sized,
    varint,
)

__all__ = ["INT64", "UINT64", "Parameter", "entry", "parameter", "read_parameter"]

Parameter: TypeAlias = bool | int | float | str
"""What a parameter may be."""

# Fields of InferParameter: one of them is set.
BOOL, INT64, STRING, DOUBLE, UINT64 = range(1, 6)
_DOUBLE_TAG = varint(DOUBLE << 3 | FIXED64)


def parameter(field: int, key: str, value: Parameter) -> bytes:
    """One entry of a map of parameters, which is the message's `field`."""
    if isinstance(value, bool):
        return entry(field, key, flag(BOOL, value))
    if isinstance(value, int):
        if not -1 << 63 <= value < 1 << 63:
            raise ValueError(f"parameter {key}={value}: a whole number of 64 bits is wanted")
        return entry(field, key, number(INT64, value))
    if isinstance(value, float):
        return entry(field, key, _DOUBLE_TAG + struct.pack("<d", value))
    if isinstance(value, str):
        return entry(field, key, sized(STRING, value.encode()))
    raise ValueError(
        f"parameter {key} is a {type(value).__name__}: a bool, int, float or str is wanted"
    )


def entry(field: int, key: str, value: bytes) -> bytes:
    """One entry whose value is an encoded `InferParameter`."""
    return sized(field, sized(1, key.encode()) + sized(2, value))


def read_parameter(data: bytes) -> tuple[str, Parameter | None]:
    """The name and value of one entry; None if it is of a type added to Triton later.

    Raises:
        ValueError: or `IndexError`: the bytes are no entry.
    """
    key, value = "", b""
    for tag, start, end in fields(data):
        if tag == 1 << 3 | SIZED:
            key = data[start:end].decode()
        elif tag == 2 << 3 | SIZED:
            value += data[start:end]
    return key, _value(value)


def _value(data: bytes) -> Parameter | None:
    found: Parameter | None = None
    for tag, start, end in fields(data):
        if tag == BOOL << 3 | VARINT:
            found = read_varint(data, start)[0] != 0
        elif tag == INT64 << 3 | VARINT:
            found = read_signed(data, start)[0]
        elif tag == STRING << 3 | SIZED:
            found = data[start:end].decode()
        elif tag == DOUBLE << 3 | FIXED64:
            found = struct.unpack_from("<d", data, start)[0]
        elif tag == UINT64 << 3 | VARINT:
            found = read_varint(data, start)[0]
    return found
