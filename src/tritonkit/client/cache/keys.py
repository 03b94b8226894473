"""Which calls are the same: one key from model, version, outputs asked for and every input.

A key is stable over processes, machines and releases with the same layout: a letter (`p` for a pinned
version, `u` for the server's choice) and blake2b over the names, datatypes, shapes and bytes that would
be sent. Every text has its length before it, and datatype and shape say how many bytes follow, so
that no two calls write the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias

from numpy.typing import NDArray

from tritonkit.wire.tensors import FIXED, wire_array

__all__ = ["KEY_BYTES", "Inputs", "is_pinned", "key_of"]

Inputs: TypeAlias = Mapping[str, tuple[str, NDArray[Any]]]
"""Datatype and array by input name; the arrays are the checked ones that are sent."""

_DIGEST_BYTES = 32
KEY_BYTES = 1 + _DIGEST_BYTES
_SMALL_BYTES = 4096
_Described: TypeAlias = tuple[tuple[str, str, tuple[int, ...]], ...]


def key_of(
    namespace: str, model: str, version: str, inputs: Inputs, outputs: tuple[str, ...] | None
) -> bytes:
    """The key of one call.

    Args:
        namespace: which servers, see `Cache`.
        model: the model's name.
        version: the version asked for, empty for the server's choice.
        inputs: what would be sent; their order does not matter.
        outputs: the outputs asked for in order, None for all.

    Raises:
        ValueError: an array is not of its datatype.
    """
    names = sorted(inputs) if len(inputs) > 1 else inputs
    described = tuple([(name, inputs[name][0], inputs[name][1].shape) for name in names])
    head = _head(namespace, model, version, outputs, described)
    hashed = blake2b(head, digest_size=_DIGEST_BYTES)
    for name in names:
        datatype, array = inputs[name]
        hashed.update(_data(array, datatype))
    return (b"p" if version else b"u") + hashed.digest()


def is_pinned(key: bytes) -> bool:
    """Whether the call named a version."""
    return key[0] == 0x70  # p


def _data(array: NDArray[Any], datatype: str) -> Any:
    dtype = FIXED.get(datatype)
    if dtype is not None and array.dtype == dtype and array.nbytes <= _SMALL_BYTES:
        return array.tobytes()  # for a small one cheaper than looking at how it lies in memory
    return wire_array(array, datatype)


@lru_cache(maxsize=4096)
def _head(
    namespace: str,
    model: str,
    version: str,
    outputs: tuple[str, ...] | None,
    described: _Described,
) -> bytes:
    parts = [namespace, model, version]
    parts += ["all"] if outputs is None else ["some", str(len(outputs)), *outputs]
    for name, datatype, shape in described:
        parts += [name, datatype, str(len(shape)), *map(str, shape)]
    encoded = [part.encode() for part in parts]
    return b"".join(len(part).to_bytes(4, "little") + part for part in encoded)
