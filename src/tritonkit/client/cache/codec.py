"""A cached answer as bytes for Redis, and back: Triton's `ModelInferResponse`, after a checksum of it.

The response's parameter `tritonkit_key` is the key under which the answer was stored. The bytes of level 2 are
read as those of a server are, which may say anything: `tritonkit.wire.answer`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from numpy.typing import NDArray

from tritonkit.client.cache.entry import Entry, frozen
from tritonkit.errors import InferenceError
from tritonkit.wire.answer import decode as read_answer
from tritonkit.wire.messages import schema
from tritonkit.wire.tensors import FIXED, to_raw

__all__ = ["decode", "encode"]

_CHECKSUM_BYTES = 16
_KEY = "tritonkit_key"
_NAMES = {dtype: name for name, dtype in FIXED.items()}


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
