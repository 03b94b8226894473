"""Calls served models: an address and arrays in, a `Reply` out.

    from tritonkit.client import Client

    with Client("127.0.0.1:8001") as client:
        reply = client.model("digits").predict(image=png_bytes)
        reply["label"]

`AsyncClient` is the same for asyncio. The logic of a call is written once, as generators of steps (`steps`, `core`,
`inference`); `policy`, `batching`, `cache`, `shm`, `streams` and `observers` are its parts. `wire` has the messages
and their carriers, `testing` servers in memory. A public name is loaded on first use, with numpy and without gRPC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonkit.client.aio import AsyncClient, AsyncModel
    from tritonkit.client.batching import Adaptive
    from tritonkit.client.cache import Cache
    from tritonkit.client.observers import CallEvent, Observer, OpenTelemetryTracing, PrometheusMetrics
    from tritonkit.client.options import Options
    from tritonkit.client.policy import Breaker, Hedge, Limit, Retry
    from tritonkit.client.reply import Reply, Timing
    from tritonkit.client.shm import SharedMemory
    from tritonkit.client.status import BatchStatistics, ModelStatistics, ModelStatus, ServerInfo
    from tritonkit.client.sync import Client, Model
    from tritonkit.client.wire.secure import TLS, Secret
    from tritonkit.client.wire.signature import ModelSignature, TensorSpec
    from tritonkit.client.wire.transport import AsyncTransport, Transport

__all__ = [
    "TLS",
    "Adaptive",
    "AsyncClient",
    "AsyncModel",
    "AsyncTransport",
    "BatchStatistics",
    "Breaker",
    "Cache",
    "CallEvent",
    "Client",
    "Hedge",
    "Limit",
    "Model",
    "ModelSignature",
    "ModelStatistics",
    "ModelStatus",
    "Observer",
    "OpenTelemetryTracing",
    "Options",
    "PrometheusMetrics",
    "Reply",
    "Retry",
    "Secret",
    "ServerInfo",
    "SharedMemory",
    "TensorSpec",
    "Timing",
    "Transport",
]

_HOMES = {
    "aio": ("AsyncClient", "AsyncModel"),
    "batching": ("Adaptive",),
    "cache": ("Cache",),
    "observers": ("CallEvent", "Observer", "OpenTelemetryTracing", "PrometheusMetrics"),
    "options": ("Options",),
    "policy": ("Breaker", "Hedge", "Limit", "Retry"),
    "reply": ("Reply", "Timing"),
    "shm": ("SharedMemory",),
    "status": ("BatchStatistics", "ModelStatistics", "ModelStatus", "ServerInfo"),
    "sync": ("Client", "Model"),
    "wire.secure": ("TLS", "Secret"),
    "wire.signature": ("ModelSignature", "TensorSpec"),
    "wire.transport": ("AsyncTransport", "Transport"),
}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"tritonkit.client.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
