"""Tensors of the Open Inference Protocol as numpy arrays, and back: in JSON, and as bytes behind it."""

from __future__ import annotations

import base64
import binascii
import math
from itertools import chain
from typing import Any

import numpy as np
from triton_python_types import TYPES

from tritonkit_lambda.errors import RefusedRequest

MOST_AXES = 32
MOST_ELEMENTS = 1 << 31
"""More than any event has bytes."""
_LENGTH = 4
"""Bytes before each element of BYTES that say how many follow."""


def read_shape(shape: Any, where: str) -> list[int]:
    """Read a tensor's `shape`."""
    if not isinstance(shape, list) or len(shape) > MOST_AXES:
        raise RefusedRequest(f"{where}.shape: found {_short(shape)}, wanted a list of whole numbers")
    for index, size in enumerate(shape):
        if type(size) is not int or size < 0:
            raise RefusedRequest(f"{where}.shape[{index}]: found {_short(size)}, wanted a whole number from 0")
    # numpy multiplies past an axis of 0, too.
    if math.prod(max(size, 1) for size in shape) > MOST_ELEMENTS:
        raise RefusedRequest(f"{where}.shape: found {_short(shape)}, wanted {MOST_ELEMENTS} elements at most")
    return shape


def from_json(data: Any, datatype: str, shape: list[int], where: str, *, in_base64: bool) -> np.ndarray:
    """A tensor whose elements are in the JSON, in one list or in nested ones."""
    if not isinstance(data, list):
        raise RefusedRequest(f"{where}.data: found {_short(data)}, wanted a list of {datatype}")
    flat = _flat(data, where)
    if len(flat) != math.prod(shape):
        raise RefusedRequest(
            f"{where}.data: found {len(flat)} elements, wanted {math.prod(shape)}: its shape is {shape}"
        )
    if datatype == "BYTES":
        made = np.empty(len(flat), dtype=object)
        for index, value in enumerate(flat):
            made[index] = _element(value, f"{where}.data[{index}]", in_base64)
        return made.reshape(shape)
    _check_numbers(flat, datatype, where)
    return np.array(flat, dtype=TYPES[datatype]).reshape(shape)


def from_binary(raw: bytes, datatype: str, shape: list[int], where: str) -> np.ndarray:
    """A tensor whose elements come as bytes behind the JSON."""
    count = math.prod(shape)
    if datatype == "BYTES":
        return _split(raw, count, where).reshape(shape)
    kind = np.dtype(TYPES[datatype])
    if len(raw) != count * kind.itemsize:
        raise RefusedRequest(f"{where}: found {len(raw)} bytes, wanted {count * kind.itemsize}: {shape} of {datatype}")
    return np.frombuffer(raw, dtype=kind.newbyteorder("<")).astype(kind).reshape(shape)


def to_json(name: str, array: np.ndarray) -> list[Any]:
    """An output's elements for `data`."""
    ask = f"output '{name}': {{}}; ask for it as bytes: parameters {{{{binary_data: true}}}}, over HTTP"
    if array.dtype == np.object_:
        try:
            return [bytes(value).decode() for value in array.ravel()]
        except UnicodeDecodeError:
            raise RefusedRequest(ask.format("it is not text, which JSON cannot carry")) from None
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise RefusedRequest(ask.format("not all of it is finite, which JSON cannot carry"))
    values: list[Any] = array.ravel().tolist()
    return values


def to_binary(array: np.ndarray) -> bytes:
    """An output's elements as bytes after the JSON."""
    if array.dtype != np.object_:
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    parts = [bytes(value) for value in array.ravel()]
    return b"".join(chain.from_iterable((len(p).to_bytes(_LENGTH, "little"), p) for p in parts))


def datatype_of(array: np.ndarray) -> str:
    """The protocol's name of an array's type."""
    return next(name for name, kind in TYPES.items() if array.dtype == kind)


def _flat(data: list[Any], where: str) -> list[Any]:
    """The elements of nested lists; all of a depth are lists, or none."""
    for _ in range(MOST_AXES):
        nested = sum(isinstance(item, list) for item in data)
        if not nested:
            return data
        if nested < len(data):
            break
        data = list(chain.from_iterable(data))
    raise RefusedRequest(
        f"{where}.data: found lists mixed with other values, or nested too deeply; wanted a regular array"
    )


def _check_numbers(flat: list[Any], datatype: str, where: str) -> None:
    """Refuse numbers that do not fit the type: nothing is rounded or cut."""
    kind = np.dtype(TYPES[datatype])
    if datatype == "FP16":
        raise RefusedRequest(f"{where}: FP16 is sent as bytes after the JSON: binary_data_size")
    allowed = {"b": {bool}, "f": {int, float}}.get(kind.kind, {int})
    for index, value in enumerate(flat) if not set(map(type, flat)) <= allowed else ():
        if type(value) not in allowed:
            raise RefusedRequest(f"{where}.data[{index}]: found {_short(value)}, wanted {datatype}")
    if kind.kind in "iu" and flat:
        limits = np.iinfo(kind)
        for value in (min(flat), max(flat)):
            if not limits.min <= value <= limits.max:
                raise RefusedRequest(f"{where}.data: found {_short(value)}, wanted {datatype}")
    if kind.kind == "f" and flat:
        largest = float(np.finfo(kind).max)
        if not all(-largest <= value <= largest for value in flat):
            raise RefusedRequest(f"{where}.data: an element is too large for {datatype}, or not a number")


def _element(value: Any, where: str, in_base64: bool) -> bytes:
    if not isinstance(value, str):
        raise RefusedRequest(f"{where}: found {_short(value)}, wanted a text")
    try:
        return base64.b64decode(value, validate=True) if in_base64 else value.encode()
    except (binascii.Error, ValueError):  # a lone surrogate is no UTF-8
        expected = "base64" if in_base64 else "a text in UTF-8"
        raise RefusedRequest(f"{where}: wanted {expected}") from None


def _split(raw: bytes, count: int, where: str) -> np.ndarray:
    """BYTES elements, each with its length before it."""
    parts: list[bytes] = []
    at = 0
    while at < len(raw):
        start = at + _LENGTH
        stop = start + int.from_bytes(raw[at:start], "little")
        if start > len(raw) or stop > len(raw):
            raise RefusedRequest(f"{where}: element {len(parts)} ends after the {len(raw)} bytes there are")
        parts.append(raw[start:stop])
        at = stop
    if len(parts) != count:
        raise RefusedRequest(f"{where}: found {len(parts)} elements, wanted {count}")
    made = np.empty(count, dtype=object)
    made[:] = parts
    return made


def _short(value: Any) -> str:
    """A value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
