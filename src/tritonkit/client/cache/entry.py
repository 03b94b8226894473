"""The key of a call, its cached answer, and the answer as bytes for Redis: pure.

A key is stable over processes, machines and releases with the same layout: a letter (`p` for a pinned version,
`u` for the server's choice) and blake2b over the namespace and the request as it would be sent, but for its
deadline and priority. Two messages with the same bytes are the same request: protobuf's fields say their lengths.

An answer travels as Triton's `ModelInferResponse` after a checksum of it; the parameter `tritonkit_key` is the key
under which it was stored. It is read by the code that reads a server's answers, which may say anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tritonkit.client.wire.answer import decode as read_answer
from tritonkit.client.wire.messages import schema
from tritonkit.client.wire.tensors import FIXED, to_raw
from tritonkit.errors import InferenceError

__all__ = ["KEY_BYTES", "Entry", "decode", "encode", "frozen", "is_pinned", "key_of", "size_of"]

_DIGEST_BYTES = 32
KEY_BYTES = 1 + _DIGEST_BYTES
_CHECKSUM_BYTES = 16
_KEY = "tritonkit_key"
_NAMES = {dtype: name for name, dtype in FIXED.items()}

_ENTRY_BYTES = 600
"""Approximate bytes of an answer besides its data: key, tuple, dictionary, the cache's own links."""
_ARRAY_BYTES = 250
_CELL_BYTES = 41
"""A `bytes` object of no bytes and the reference to it, in CPython."""


class Entry(NamedTuple):
    """An answer: its model and version, and its outputs in the server's order, as in a reply."""

    model: str
    version: str
    outputs: Mapping[str, NDArray[Any]]


def key_of(namespace: str, version: str, message: Iterable[bytes | memoryview]) -> bytes:
    """The key of one call: of a version (empty for the server's choice) and `InferRequest.canonical`."""
    name = namespace.encode()
    hashed = blake2b(len(name).to_bytes(4, "little") + name, digest_size=_DIGEST_BYTES)
    for piece in message:
        hashed.update(piece)
    return (b"p" if version else b"u") + hashed.digest()


def is_pinned(key: bytes) -> bool:
    """Whether the call named a version."""
    return key[0] == 0x70  # p


def frozen(entry: Entry) -> Entry:
    """A read-only copy of the answer, in the machine's memory.

    An output may be a small view of a large message, which would otherwise stay in memory with it.
    """
    return entry._replace(outputs={name: _frozen(np.asarray(array)) for name, array in entry.outputs.items()})


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "O":
        copy = array.copy()
        copy.flags.writeable = False
        return copy
    # Over bytes, which cannot be made writeable again, as a caller could an array that owns its memory.
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def size_of(entry: Entry) -> int:
    """The approximate bytes of an answer."""
    return _ENTRY_BYTES + sum(map(_array_bytes, entry.outputs.values()))


def _array_bytes(array: NDArray[Any]) -> int:
    if array.dtype.kind == "O":
        return _ARRAY_BYTES + sum(_CELL_BYTES + len(cell) for cell in array.flat)
    return _ARRAY_BYTES + array.nbytes


def encode(entry: Entry, key: bytes) -> bytes:
    """An answer as bytes, bound to its key.

    Raises:
        ValueError: an array is of a type Triton does not have.
    """
    message = schema().ModelInferResponse(model_name=entry.model, model_version=entry.version)
    message.parameters[_KEY].string_param = key.hex()
    for name, array in entry.outputs.items():
        datatype = _datatype(array)
        message.outputs.add(name=name, datatype=datatype, shape=array.shape)
        message.raw_output_contents.append(to_raw(array, datatype))
    body: bytes = message.SerializeToString()
    return _checksum(body) + body


def decode(data: bytes, key: bytes) -> Entry | None:
    """The answer, or None for bytes that are not one stored under this key: cut, changed, foreign, newer."""
    checksum, body = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    if checksum != _checksum(body):
        return None
    try:
        answer = read_answer(body)
    except InferenceError:
        return None
    if answer.parameters.get(_KEY) != key.hex() or answer.in_region:
        return None
    return frozen(Entry(answer.model, answer.version, answer.outputs))


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECKSUM_BYTES).digest()


def _datatype(array: NDArray[Any]) -> str:
    if array.dtype.kind == "O":
        return "BYTES"
    try:
        return _NAMES[array.dtype.newbyteorder("<")]
    except KeyError:
        raise ValueError(f"Triton has no type for an array of {array.dtype.name}") from None
