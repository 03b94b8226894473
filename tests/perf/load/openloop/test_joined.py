"""Requests of several items: joined, sent to a real gRPC server of Triton's service, and checked item by item."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tritonkit.client.wire.request import Prepared as Encoder
from tritonkit.client.wire.signature import ModelSignature, TensorSpec
from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop.joined import Encodable, joined, layouts
from tritonkit.perf.load.openloop.sender import LoadRequest, Record, Sender, Stop
from tritonkit.perf.load.workload import Check, Outputs


def signature(max_batch_size: int = 8, batched: bool = True) -> ModelSignature:
    """Whole numbers in, the same number of them out."""
    x, y = (TensorSpec(name, "INT32", (-1,), batched) for name in "xy")
    return ModelSignature("numbers", ("1",), max_batch_size, MappingProxyType({"x": x}), MappingProxyType({"y": y}))


def expect(number: int) -> Check:
    """The first number of the only item."""

    def check(outputs: Outputs) -> str:
        if outputs["y"].shape[0] != 1:
            return f"{len(outputs['y'])} items"
        return "" if outputs["y"][0, 0] == number else "another number"

    return check


def single(number: int, right: int | None = None, width: int = 1) -> Encodable:
    """One item of several numbers."""
    arrays = {"x": np.full((1, width), number, np.int32)}
    return Encodable(arrays, 1, expect(number if right is None else right))


def first_numbers(requests: Sequence[Encodable]) -> list[list[int]]:
    """The check of each item of each request."""
    return [request.arrays["x"][:, 0].tolist() for request in requests]


class Echo(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Answers a batch by itself, or by `most` of its items; notes the sizes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.sizes: list[int] = []

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """One output, `y`, with the shape and numbers of `x`."""
        shape = list(request.inputs[0].shape)
        self.sizes.append(shape[0])
        numbers = np.frombuffer(request.raw_input_contents[0], np.int32).reshape(shape)[: self.most]
        reply = service_pb2.ModelInferResponse(model_name="numbers", model_version="1")
        reply.outputs.add(name="y", datatype="INT32", shape=numbers.shape)
        reply.raw_output_contents.append(numbers.tobytes())
        return reply


@contextlib.contextmanager
def serving(most: int = 100) -> Iterator[tuple[str, Echo]]:
    """A server for the block: its address, and what it saw."""
    server = grpc.server(ThreadPoolExecutor(8))
    echo = Echo(most)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(echo, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", echo
    finally:
        server.stop(None).wait()


def send(address: str, requests: Sequence[Encodable]) -> Record:
    """Each once."""
    encoder = Encoder(signature(), "", None)
    made = [LoadRequest(tuple(encoder.encode(r.arrays)), r.check, r.items) for r in requests]
    sender = Sender([address], made, 30.0, Stop(), lambda: False)
    count = len(made)
    return sender.run(np.arange(count) / 200, np.arange(count), time.monotonic() + 0.05)


def test_every_item_is_in_a_request_and_the_last_one_begins_again() -> None:
    """Five items in requests of two: three of them."""
    requests = joined(signature(), [single(k) for k in range(5)], 2)
    assert first_numbers(requests) == [[0, 1], [2, 3], [4, 0]]
    assert [request.items for request in requests] == [2, 2, 2]


def test_one_request_is_repeated() -> None:
    """A model with an example and no more."""
    assert first_numbers(joined(signature(), [single(7)], 4)) == [[7, 7, 7, 7]]


def test_single_items_stay_as_they_are() -> None:
    """Also of a model that does not batch, and whatever their shapes."""
    requests = (single(1), single(2, width=3), Encodable({"x": np.zeros((2, 1))}, 2, expect(0)))
    assert joined(signature(0), requests, 1) == requests


def test_only_items_of_one_shape_share_a_request() -> None:
    """The layouts say which."""
    singles = [single(1), single(2, width=2), single(3), single(4, width=2), single(5)]
    requests = joined(signature(), singles, 2)
    assert first_numbers(requests) == [[1, 3], [5, 1], [2, 4]]
    assert layouts(singles) == [0, 1, 0, 1, 0]
    assert layouts([*singles, *requests]) == [0, 1, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("model", "singles", "words"),
    [
        (signature(0, batched=False), [single(1)], "it does not batch"),
        (signature(8, batched=False), [single(1)], "it does not batch"),
        (signature(3), [single(1)], "its max_batch_size is 3"),
        (signature(), [Encodable({"x": np.zeros((2, 1))}, 2, expect(0))], "a request of 2"),
        (signature(), [single(1), single(2, width=2)], "2 requests of 2 shapes"),
    ],
)
def test_what_cannot_be_joined_is_refused(model: ModelSignature, singles: list[Encodable], words: str) -> None:
    """With what stands in the way."""
    with pytest.raises(UsageError, match=words) as caught:
        joined(model, singles, 4)
    assert caught.value.where == "model numbers: requests of 4 items"


def test_each_item_is_checked_by_its_own_check_and_one_wrong_fails_its_request_alone() -> None:
    """The eighth of twelve items in threes is wrong, so the third request is."""
    singles = [single(k, right=99 if k == 7 else None) for k in range(12)]
    with serving() as (address, echo):
        record = send(address, joined(signature(), singles, 3))
    assert record.outcome.tolist() == [0, 0, 1, 0]
    assert record.failures == ("another number",)
    assert echo.sizes == [3, 3, 3, 3]


def test_an_answer_with_fewer_items_is_a_failure() -> None:
    """Nothing can be said of any item of it."""
    with serving(most=2) as (address, _):
        record = send(address, joined(signature(), [single(k) for k in range(3)], 3))
    assert record.outcome.tolist() == [1]
    assert "a batch of 3" in record.failures[0]
