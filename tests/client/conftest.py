"""Models made of functions, reachable in memory and over a real gRPC connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeAlias

import grpc
import numpy as np
import pytest

from tritonkit.client import Client
from tritonkit.errors import ModelNotFound, TritonkitError
from tritonkit.testing import FakeModel, MemoryTransport

Serve: TypeAlias = Callable[[Mapping[str, FakeModel]], AbstractContextManager[str]]
Connect: TypeAlias = Callable[..., AbstractContextManager[Client]]


def _label(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The length of each image, as text and as a score."""
    sizes = [len(image) for image in inputs["image"].ravel()]
    return {"label": [[str(size)] for size in sizes], "score": np.array(sizes, np.float32).reshape(-1, 1)}


DIGITS = FakeModel(
    inputs={"image": ("BYTES", [1])},
    outputs={"label": ("BYTES", [1]), "score": ("FP32", [1])},
    function=_label,
    max_batch_size=4,
)
ADD = FakeModel(
    inputs={"a": ("FP32", [-1, 2]), "b": ("FP32", [-1, 2])},
    outputs={"sum": ("FP32", [-1, 2])},
    function=lambda inputs: {"sum": inputs["a"] + inputs["b"]},
    max_batch_size=4,
)
PLAIN = FakeModel(
    inputs={"odd-name": ("INT64", [-1])},
    outputs={"twice": ("INT64", [-1])},
    function=lambda inputs: {"twice": inputs["odd-name"] * 2},
    max_batch_size=0,
    version="3",
)


@pytest.fixture
def models() -> dict[str, FakeModel]:
    """Three small models: text, two inputs of open size, and one without a batch axis."""
    return {"digits": DIGITS, "add": ADD, "plain": PLAIN}


class _Service(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Triton's service, answered by a memory transport; messages stay bytes."""

    def __init__(self, models: Mapping[str, FakeModel]) -> None:
        self._memory = MemoryTransport(models)

    def service(self, details: Any) -> Any:
        """A handler for the method called."""
        method = details.method.rpartition("/")[2]
        if method == "ModelStreamInfer":
            return grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.unary_unary_rpc_method_handler(partial(self._answer, method))

    def _answer(self, method: Any, request: bytes, context: Any) -> bytes:
        try:
            return bytes(self._memory.send(method, [request], 60.0))
        except ModelNotFound as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except TritonkitError as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error))
        raise AssertionError("abort raises")

    def _stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        stream = self._memory.stream()
        context.add_callback(stream.cancel)
        for request in requests:
            stream.write([request])
        stream.end()
        try:
            while (message := stream.read()) is not None:
                yield bytes(message)
        except TritonkitError as error:
            context.abort(grpc.StatusCode.INTERNAL, str(error))


@contextmanager
def serving(models: Mapping[str, FakeModel]) -> Iterator[str]:
    """A real gRPC server for a block; gives its address."""
    server = grpc.server(ThreadPoolExecutor(6))
    server.add_generic_rpc_handlers([_Service(models)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait(5)


@pytest.fixture
def serve() -> Serve:
    """Run a real gRPC server for a block; it gives the address."""
    return serving


@pytest.fixture(params=["memory", "grpc"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Make a client of some models, once in memory and once over gRPC: both must act in the same way."""

    @contextmanager
    def connecting(models: Mapping[str, FakeModel], **options: Any) -> Iterator[Client]:
        options = {"timeout_s": 10.0} | options
        if request.param == "memory":
            with Client(transport=MemoryTransport(models), **options) as client:
                yield client
        else:
            with serving(models) as address, Client(address, **options) as client:
                yield client

    return connecting


@pytest.fixture
def client(connect: Connect, models: dict[str, FakeModel]) -> Iterator[Client]:
    """A client of the three models."""
    with connect(models) as client:
        yield client
