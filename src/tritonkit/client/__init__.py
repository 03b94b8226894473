"""Calling served models: an address and arrays in, a `Reply` out.

    from tritonkit.client import Client

    with Client("127.0.0.1:8001") as client:
        reply = client.model("digits").predict(image=png_bytes)
        reply["label"]

`AsyncClient` is the same for asyncio. What a call does is written once, as generators of steps
(`steps`, `calls`, `path`); `policy`, `batching`, `cache`, `shm`, `streams` and `seeing` are its parts, `wire`
the messages, `http2` what carries them. Importing this package loads numpy and no gRPC.
"""

from tritonkit.client.aio import AsyncClient, AsyncModel
from tritonkit.client.batching import Adaptive
from tritonkit.client.cache import Cache
from tritonkit.client.http2.secure import TLS, Secret
from tritonkit.client.options import Options
from tritonkit.client.policy import Breaker, Hedge, Limit, Retry
from tritonkit.client.reply import Reply, Timing
from tritonkit.client.seeing import (
    CallEvent,
    Observer,
    OpenTelemetryTracing,
    PrometheusMetrics,
)
from tritonkit.client.shm import SharedMemory
from tritonkit.client.signature import ModelSignature, TensorSpec
from tritonkit.client.status import ModelStatistics, ModelStatus, ServerInfo
from tritonkit.client.sync import Client, Model
from tritonkit.client.wire.memory import AsyncMemoryTransport, FakeModel, MemoryTransport
from tritonkit.client.wire.transport import AsyncTransport, Transport

__all__ = [
    "TLS",
    "Adaptive",
    "AsyncClient",
    "AsyncMemoryTransport",
    "AsyncModel",
    "AsyncTransport",
    "Breaker",
    "Cache",
    "CallEvent",
    "Client",
    "FakeModel",
    "Hedge",
    "Limit",
    "MemoryTransport",
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
