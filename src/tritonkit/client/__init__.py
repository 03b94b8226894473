"""Calling served models: an address and arrays in, a `Reply` out.

    from tritonkit.client import Client

    with Client("127.0.0.1:8001") as client:
        reply = client.model("digits").predict(image=png_bytes)
        reply["label"]

`core` is pure and knows no wire; `transport` says what a wire must do; `sync` puts the two
together. Importing this package loads numpy and no gRPC.
"""

from tritonkit.client.memory import FakeModel, MemoryTransport
from tritonkit.client.reply import Reply, Timing
from tritonkit.client.signature import ModelSignature, TensorSpec
from tritonkit.client.status import ModelStatistics, ModelStatus, ServerInfo
from tritonkit.client.sync import Client, Model
from tritonkit.client.transport import Transport

__all__ = [
    "Client",
    "FakeModel",
    "MemoryTransport",
    "Model",
    "ModelSignature",
    "ModelStatistics",
    "ModelStatus",
    "Reply",
    "ServerInfo",
    "TensorSpec",
    "Timing",
    "Transport",
]
