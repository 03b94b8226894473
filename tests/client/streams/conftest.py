"""Decoupled models made of functions, and clients of them in memory and over a real gRPC connection."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, TypeAlias

import numpy as np
import pytest

from tests.client.conftest import serving
from tritonkit.client import AsyncClient, Client
from tritonkit.errors import ServerUnavailable
from tritonkit.testing import AsyncMemoryTransport, FakeModel, MemoryTransport

Connect: TypeAlias = Callable[..., AbstractContextManager[Client]]
AsyncConnect: TypeAlias = Callable[..., AbstractAsyncContextManager[AsyncClient]]
VECTOR: Mapping[str, Any] = {"x": ("FP32", [3])}
ONE: Mapping[str, Any] = {"y": ("FP32", [1])}


class Counter:
    """A decoupled model that counts; `x` is how many answers, seconds between them (until `go_on`), where to fail."""

    def __init__(self) -> None:
        self.requests = 0
        self.stopped = threading.Event()
        self.go_on = threading.Event()
        self.model = FakeModel(VECTOR, ONE, self._function, max_batch_size=0)

    def _function(self, inputs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        many, pause_s, fail_at = inputs["x"].tolist()
        self.requests += 1
        try:
            for number in range(int(many)):
                if number == fail_at:
                    raise ValueError("told to fail")
                yield {"y": [number]}
                self.go_on.wait(pause_s)
        except GeneratorExit:
            self.stopped.set()
            raise


@pytest.fixture
def counter() -> Counter:
    """A fresh one."""
    return Counter()


@pytest.fixture
def models(counter: Counter) -> dict[str, FakeModel]:
    """The counter and a model that answers once."""
    double = FakeModel(VECTOR, {"y": ("FP32", [3])}, lambda inputs: {"y": inputs["x"] * 2})
    return {"count": counter.model, "double": double}


@pytest.fixture(params=["memory", "grpc"])
def connect_async(request: pytest.FixtureRequest) -> AsyncConnect:
    """`connect` for tasks."""

    @asynccontextmanager
    async def connecting(models: Mapping[str, FakeModel], **options: Any) -> AsyncIterator[AsyncClient]:
        if request.param == "memory":
            async with AsyncClient(transport=AsyncMemoryTransport(models), **options) as client:
                yield client
        else:
            with serving(models) as address:
                async with AsyncClient(address, **options) as client:
                    yield client

    return connecting


class Server(MemoryTransport):
    """A server in memory that can be lost and keeps what it was sent."""

    def __init__(self, models: Mapping[str, FakeModel], address: str = "memory") -> None:
        super().__init__(models)
        self.address = address
        self.lost = False
        self.errors: list[Exception] = []
        self.requests: list[dict[str, Any]] = []

    def send(self, method: Any, body: Any, timeout_s: float, headers: Any = (), _elsewhere: Any = None) -> memoryview:
        """Answer, or raise what was put into `errors`, one for each inference."""
        self._check_open()
        self._check_there()
        if method == "ModelInfer":
            self._keep(b"".join(body))
            if self.errors:
                raise self.errors.pop(0)
        return super().send(method, body, timeout_s, headers)

    def stream(self, headers: Any = (), timeout_s: float | None = None) -> Any:
        """A stream, or the next of `errors`."""
        self._check_there()
        if self.errors:
            raise self.errors.pop(0)
        return super().stream(headers, timeout_s)

    def _check_there(self) -> None:
        if self.lost:
            raise ServerUnavailable(self.address, found="nobody is there")

    def _keep(self, message: bytes) -> None:
        from tritonclient.grpc import service_pb2

        request = service_pb2.ModelInferRequest.FromString(message)
        kept = {}
        for name, value in request.parameters.items():
            kept[name] = getattr(value, value.WhichOneof("parameter_choice"))
        kept.pop("timeout", None)
        kept["x"] = np.frombuffer(request.raw_input_contents[0], np.float32).tolist()
        self.requests.append(kept)
