"""The public types as a user writes them: checked by mypy, never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonkit import Client, Reply
from tritonkit.client import (
    FakeModel,
    MemoryTransport,
    Model,
    ModelSignature,
    ModelStatistics,
    ModelStatus,
    ServerInfo,
    Transport,
)


def call(image: bytes) -> NDArray[Any]:
    """One item, then a batch with everything said."""
    with Client("127.0.0.1:8001", timeout_s=30.0) as client:
        model: Model = client.model("digits", version=1)
        reply: Reply = model.predict(image=image)
        label: NDArray[Any] = reply["label"]
        batch: Reply = model.predict(
            inputs={"odd-name": np.zeros((2, 3))}, timeout_s=0.5, outputs=["label"]
        )
        outputs: Mapping[str, NDArray[Any]] = batch.outputs
        waited: float = batch.timing.wait_s
        assert waited <= batch.timing.total_s
        return outputs.get(batch.version + batch.origin, label)


def look(client: Client) -> tuple[str, ...]:
    """What a server says of itself."""
    statuses: tuple[ModelStatus, ...] = client.models()
    info: ServerInfo = client.server_metadata()
    counters: tuple[ModelStatistics, ...] = client.statistics("digits")
    signature: ModelSignature = client.model("digits").signature
    ready: bool = client.is_ready("digits", "1")
    assert ready, (info.version, counters[0].queue_s, signature.inputs["image"].dims)
    return tuple(status.name for status in statuses if status.ready)


def double(given: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """A model for a test."""
    return {"y": given["x"] * 2}


fake = FakeModel(inputs={"x": ("FP32", [2])}, outputs={"y": ("FP32", [2])}, function=double)
transport: Transport = MemoryTransport({"double": fake})
client = Client(transport=transport)
