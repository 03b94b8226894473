"""Which calls are the same: one key from namespace, model, version, requested outputs and every input.

A key is stable over processes, machines and releases with the same layout: a letter (`p` for a pinned
version, `u` for the server's choice) and blake2b over the namespace and the request as it would be sent, but for
its deadline and priority. Two messages with the same bytes are the same request: protobuf's fields say their
lengths.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["KEY_BYTES", "is_pinned", "key_of"]

_DIGEST_BYTES = 32
KEY_BYTES = 1 + _DIGEST_BYTES


def key_of(namespace: str, version: str, message: Iterable[bytes | memoryview]) -> bytes:
    """The key of one call.

    Args:
        namespace: which servers, see `Cache`.
        version: the version asked for, empty for the server's choice.
        message: the request in pieces, see `Request.canonical`.
    """
    name = namespace.encode()
    hashed = blake2b(len(name).to_bytes(4, "little") + name, digest_size=_DIGEST_BYTES)
    for piece in message:
        hashed.update(piece)
    return (b"p" if version else b"u") + hashed.digest()


def is_pinned(key: bytes) -> bool:
    """Whether the call named a version."""
    return key[0] == 0x70  # p
