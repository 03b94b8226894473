"""A call through shared memory, as a client makes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from tests.client.shm.fake import FakeTriton
from tritonkit.client.inference import Inference
from tritonkit.client.policy import Policy
from tritonkit.client.request import InferRequest, ModelState
from tritonkit.client.shm import RegionPool, SharedMemory, system
from tritonkit.client.steps import Steps, run_blocking
from tritonkit.client.wire.signature import ModelSignature, TensorSpec

Predict: TypeAlias = Callable[..., np.ndarray[Any, Any]]

SIZE = 1000


@pytest.fixture(autouse=True)
def _own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process's files names of their own: other processes may run the same tests."""
    monkeypatch.setattr(system, "_PREFIX", f"tritonkit-client-{os.getpid()}-")


def signature(size: int = SIZE, datatype: str = "FP32") -> ModelSignature:
    """The model `copy`."""
    return ModelSignature(
        "copy",
        ("1",),
        8,
        {"x": TensorSpec("x", datatype, (size,), True)},
        {"y": TensorSpec("y", datatype, (size,), True)},
    )


def steps(
    pool: RegionPool, transport: Any, x: np.ndarray[Any, Any], datatype: str = "FP32"
) -> Steps[np.ndarray[Any, Any]]:
    """One call, as a client makes it that does not retry."""
    request = InferRequest(("copy", ""), {"x": x})
    request.deadline = time.monotonic() + 5.0
    request.check(ModelState(signature(x.shape[1], datatype)))
    policy = Policy([transport.address], lambda *_: transport, retry=None)
    reply = yield from Inference(policy, None, None, pool).answer(request)
    return reply["y"]


@pytest.fixture
def triton() -> FakeTriton:
    """A server on this machine."""
    return FakeTriton()


@pytest.fixture
def pool() -> RegionPool:
    """Regions for calls of any size, 4 MiB at most."""
    return RegionPool(SharedMemory(smallest=1, limit=4 * 2**20))


@pytest.fixture
def predict(pool: RegionPool, triton: FakeTriton) -> Predict:
    """Call the model through shared memory; what it answers."""

    def call(x: np.ndarray[Any, Any], **others: Any) -> np.ndarray[Any, Any]:
        using = {"pool": pool, "transport": triton} | others
        return run_blocking(steps(x=x, **using))

    return call
