"""A call through shared memory, as a client makes it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import numpy as np
import pytest

from tests.client.shm.fake import FakeTriton
from tritonkit.client.shm import CallRegions, RegionPool, SharedMemory, output_sizes
from tritonkit.client.steps import Send, run_blocking
from tritonkit.wire.answer import decode
from tritonkit.wire.request import Prepared
from tritonkit.wire.signature import ModelSignature, TensorSpec

Predict: TypeAlias = Callable[..., np.ndarray[Any, Any]]

SIZE = 1000


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
) -> Generator[Any, Any, tuple[np.ndarray[Any, Any], CallRegions | None]]:
    """One call; as the client does it, without its retries."""
    model = signature(x.shape[1], datatype)
    regions = pool.for_call({"x": (datatype, x)}, output_sizes(model, ("y",), len(x)))
    assert regions is not None
    ended: tuple[str | None, BaseException | None] = (None, None)
    try:
        placed = yield from regions.place(transport, 5.0)
        places = {"regions": placed.inputs, "output_regions": placed.outputs} if placed else {}
        body = Prepared(model, "", None).encode({"x": x}, timeout_s=5.0, **places)
        answer = decode((yield Send(transport, "ModelInfer", body, 5.0)), ("y",))
        ended = (transport.address, None)
        found = {name: told[:2] for name, told in answer.in_region.items()}
        return (answer.outputs | regions.read(transport.address, found))["y"], regions
    except BaseException as error:
        ended = (None, error)
        error.lost = regions.lost(error)  # type: ignore[attr-defined]
        raise
    finally:
        regions.end(*ended)


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
        return run_blocking(steps(x=x, **using))[0]

    return call
