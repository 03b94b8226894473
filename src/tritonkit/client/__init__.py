"""Calling served models: an address and arrays in, a `Reply` out.

    from tritonkit.client import Client

    with Client("127.0.0.1:8001") as client:
        reply = client.model("digits").predict(image=png_bytes)
        reply["label"]

`AsyncClient` is the same for asyncio. What a call does is written once, as generators of steps (`steps`, `core`,
`inference`); `policy`, `batching`, `cache`, `shm`, `streams` and `observers` are its parts; `wire` has the messages
and what carries them, `testing` servers in memory. Importing this loads numpy and no gRPC.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

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

_MOVED = {"AsyncMemoryTransport", "FakeModel", "MemoryTransport"}


def __getattr__(name: str) -> Any:
    """Names that were public here and have moved to `tritonkit.testing`."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"import {name} from tritonkit.testing, not from tritonkit.client", DeprecationWarning, stacklevel=2)
    return getattr(import_module("tritonkit.client.testing"), name)
