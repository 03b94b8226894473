"""gRPC over an HTTP/2 connection of our own, for threads, for tasks, and for a loop that polls its sockets.

This is all that others may import of the package; `tests/test_structure.py` checks that. Each name is loaded when it
is first used. `connection` is pure: bytes in, bytes out; the other modules move the bytes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonkit.client.wire.http2.asyncio_ import AsyncHttp2Transport
    from tritonkit.client.wire.http2.blocking import Http2Transport
    from tritonkit.client.wire.http2.call import Call
    from tritonkit.client.wire.http2.ending import answer_of
    from tritonkit.client.wire.http2.polled_connection import PolledConnection

__all__ = ["AsyncHttp2Transport", "Call", "Http2Transport", "PolledConnection", "answer_of"]

_HOMES = {
    "AsyncHttp2Transport": "asyncio_",
    "Call": "call",
    "Http2Transport": "blocking",
    "PolledConnection": "polled_connection",
    "answer_of": "ending",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
