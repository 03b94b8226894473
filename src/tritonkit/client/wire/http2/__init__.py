"""gRPC over an HTTP/2 connection of our own, for threads and for tasks.

`connection` is pure: bytes in, bytes out. `blocking` and `asyncio_` move the bytes; `status` turns
what a server says into errors of ours.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonkit.client.wire.http2.asyncio_ import AsyncHttp2Transport
    from tritonkit.client.wire.http2.blocking import Http2Transport
    from tritonkit.client.wire.http2.channel import parse_address
    from tritonkit.client.wire.http2.secure import TLS, Secret, auth_headers

__all__ = ["TLS", "AsyncHttp2Transport", "Http2Transport", "Secret", "auth_headers", "parse_address"]

_HOMES = {
    "AsyncHttp2Transport": "asyncio_",
    "Http2Transport": "blocking",
    "Secret": "secure",
    "TLS": "secure",
    "auth_headers": "secure",
    "parse_address": "channel",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
