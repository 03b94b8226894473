"""Bounds on a server's answer, and on the arrays made of its bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from tests.client.wire.fields import sized
from tritonkit.client import Client, ModelSignature, TensorSpec
from tritonkit.client.wire.answer import decode
from tritonkit.client.wire.limits import ADMIN_BYTES, ANSWER_BYTES, AnswerLimit
from tritonkit.client.wire.messages import parse
from tritonkit.client.wire.signature import signature_from
from tritonkit.errors import InferenceError, UsageError

MIB = 2**20


def model(batch: int, **outputs: tuple[str, tuple[int, ...]]) -> ModelSignature:
    """A model with these outputs."""
    specs = {name: TensorSpec(name, datatype, dims, batched=batch > 0) for name, (datatype, dims) in outputs.items()}
    return ModelSignature("m", ("1",), batch, MappingProxyType({}), MappingProxyType(specs))


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (model(8, score=("FP32", (10,))), ANSWER_BYTES),
        (model(8, pixels=("FP32", (3, 1024, 1024))), 4 * 8 * 12 * MIB),
        (model(0, pixels=("UINT8", (64 * MIB,)), half=("BF16", (MIB,))), 4 * 66 * MIB),
        (model(4, mask=("FP32", (-1, -1))), 4 * 64 * MIB),
        (model(4, text=("BYTES", (-1,))), ANSWER_BYTES),
        (model(4, huge=("FP64", (2**62, 2**62))), 2**31 - 1),
        (model(4, odd=("FP64", (127,) * 500_000)), 4 * 64 * MIB),
    ],
)
def test_what_a_model_declares_is_allowed(signature: ModelSignature, expected: int) -> None:
    """Four times what its outputs take, never less than the default nor more than protobuf carries."""
    limit = AnswerLimit()
    assert limit.of("ModelInfer") == limit.of("ModelStreamInfer") == ANSWER_BYTES
    limit.learn(signature)
    assert limit.of("ModelInfer") == limit.of("ModelStreamInfer") == expected
    limit.learn(model(1, small=("FP32", (1,))))
    assert limit.of("ModelInfer") == expected
    assert limit.of("ModelMetadata") == ADMIN_BYTES


def test_what_the_user_says_holds() -> None:
    """For every call, whatever a model declares."""
    limit = AnswerLimit(1000)
    limit.learn(model(8, pixels=("FP32", (3, 1024, 1024))))
    assert {limit.of(method) for method in ("ModelInfer", "ModelConfig")} == {1000}


@pytest.mark.parametrize("limit", [0, -1, 1.5, "64", True])
def test_limits_that_are_none(limit: Any) -> None:
    """A mistake in the setting is told when the client is made."""
    with pytest.raises(UsageError, match="max_response_bytes"):
        Client("127.0.0.1:8001", max_response_bytes=limit)


def peak(work: Callable[[], object]) -> int:
    """Bytes that Python took for something, at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


SMALL = sized(5, sized(1, b"y") + sized(3, b"\x01"))


@pytest.mark.parametrize(
    "body",
    [
        b"\x32\x00" * (2 * MIB),
        b"\x22\x00" * (2 * MIB),
        b"\x78\x01" * (2 * MIB),
        SMALL * (MIB // 4),
        sized(5, b"\x22\x00" * MIB),
        sized(5, b"\x18\x01" * MIB),
        sized(5, b"\x2a\x00" * MIB),
        sized(5, sized(3, b"\x7f" * 200_000)),
    ],
)
def test_an_answer_of_small_parts_without_end(body: bytes) -> None:
    """It is refused before it has become objects, and before sizes are multiplied for ever."""

    def refused() -> None:
        with pytest.raises(InferenceError):
            decode(body)

    assert peak(refused) < 2 * len(body) + 12 * MIB


def test_numbers_in_typed_fields_take_what_their_array_does() -> None:
    """They are not all made Python's numbers together."""
    count = 150_000
    answer = service_pb2.ModelInferResponse(model_name="m")
    output = answer.outputs.add(name="y", datatype="INT32", shape=[count])
    output.contents.int_contents.extend([100_000] * count)
    body = answer.SerializeToString()
    arrays: list[Any] = []
    assert peak(lambda: arrays.append(decode(body).outputs["y"])) < 5 * MIB
    assert arrays[0].dtype == np.int32
    assert (arrays[0] == 100_000).all()
    assert len(arrays[0]) == count


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("RepositoryIndex", b"\x0a\x00" * MIB),
        ("ModelStatistics", sized(1, sized(1, b"m") + b"\x3a\x00" * MIB)),
        ("ModelConfig", sized(1, sized(15, b"\x0a\x00" * MIB))),
        ("ServerMetadata", b"\x1a\x00" * MIB),
    ],
)
def test_questions_answered_without_end(method: Any, body: bytes) -> None:
    """Fields are counted before they become objects, those inside others too."""
    with pytest.raises(InferenceError, match="more than 100000 fields"):
        parse(method, body)


def test_a_large_repository_is_read() -> None:
    """A server with many models, long reasons and binary parameters says what it always did."""
    index = service_pb2.RepositoryIndexResponse()
    for number in range(10_000):
        index.models.add(name=f"model-{number}", version="1", state="READY", reason="r" * 100)
    assert len(parse("RepositoryIndex", index.SerializeToString()).models) == 10_000
    config = model_config_pb2.ModelConfig(name="m")
    config.parameters["text"].string_value = "words and more words " * 50_000
    whole = service_pb2.ModelConfigResponse(config=config)
    answer = parse("ModelConfig", whole.SerializeToString())
    assert answer.SerializeToString() == whole.SerializeToString()


@pytest.mark.parametrize(("datatype", "axes"), [(99, 1), (11, 1000)])
def test_configurations_of_no_tensor(datatype: int, axes: int) -> None:
    """An unknown datatype and more axes than an array has are typed errors."""
    number = sized(1, b"y") + b"\x10" + bytes((datatype,)) + sized(3, b"\x01" * axes)
    config = model_config_pb2.ModelConfig.FromString(sized(6, number))
    with pytest.raises(InferenceError, match="a model's configuration"):
        signature_from(service_pb2.ModelMetadataResponse(name="m"), config)
