"""Faults of Triton 2.51 that one request without a key sets off, and that the guard keeps from happening."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests.hostile.conftest import Target
from tests.hostile.test_closed import stub
from tests.waiting import PATIENCE_S
from tritonkit import Client


def request(model: str, shape: Sequence[int], raw: bytes, datatype: str = "FP32") -> Any:
    """A request for a model's output `y`."""
    made = service_pb2.ModelInferRequest(model_name=model)
    made.inputs.add(name="x", datatype=datatype).shape.extend(shape)
    made.raw_input_contents.append(raw)
    made.outputs.add(name="y")
    return made


def refusal(target: Target, wrong: Any) -> str:
    """The status and details of the answer to a request that must be refused; the server lives on."""
    with stub(target.endpoint.grpc) as service, pytest.raises(grpc.RpcError) as caught:
        service.ModelInfer(wrong, timeout=PATIENCE_S)
    unharmed(target)
    return f"{caught.value.code().name}: {caught.value.details()}"  # type: ignore[attr-defined]


def unharmed(target: Target) -> None:
    """The process is the one it was, and answers."""
    assert target.server.endpoint.pid == target.endpoint.pid
    assert not target.of("server_died")
    with Client(target.endpoint.grpc) as client:
        values = np.ones((1, 4), np.float32)
        np.testing.assert_array_equal(client.model("wide").predict(x=values)["y"], values)


@pytest.mark.parametrize("classes", [1, 3, 2**31 - 1])
def test_classes_of_texts_are_refused(target: Target, classes: int) -> None:
    """A text wanted as classes: Triton divided by the size of its values, 0 (SIGFPE; server#8267)."""
    wrong = request("text", [1, 1], struct.pack("<I", 5) + b"hello", "BYTES")
    wrong.outputs[0].parameters["classification"].int64_param = classes
    assert "unsupported type 'BYTES'" in refusal(target, wrong)


def test_classes_of_numbers_are_answered(target: Target) -> None:
    """The classification extension itself works."""
    right = request("wide", [1, 4], struct.pack("<4f", 1, 7, 3, 5))
    right.outputs[0].parameters["classification"].int64_param = 2
    with stub(target.endpoint.grpc) as service:
        answer = service.ModelInfer(right, timeout=PATIENCE_S)
    assert answer.outputs[0].datatype == "BYTES"
    assert b"7.000000:1" in answer.raw_output_contents[0]
    unharmed(target)


@pytest.mark.parametrize("size", [-1, -(1 << 63), 1 << 31, 1 << 32, (1 << 32) + 1, (1 << 63) - 1])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("model", ["wide", "queued", "both", "mixed"])
def test_impossible_shapes_are_refused_in_words(target: Target, model: str, axis: int, size: int) -> None:
    """A batch of 2^32 was cut to one of none and never answered; a negative size became one near 2^64."""
    shape = [1, 0]
    shape[axis] = size
    message = refusal(target, request(model, shape, b"", "INT8" if model == "mixed" else "FP32"))
    assert message.startswith("INVALID_ARGUMENT")
    assert f"dimension {axis} of its shape is {size}; 0 to 2147483647 are taken" in message


def test_a_stream_that_wants_strict_errors_harms_nobody(target: Target) -> None:
    """The mode in which Triton used what it had freed is off: errors come as answers (server#8708)."""
    wrong = request("wide", [1, 4], b"too short")
    with stub(target.endpoint.grpc) as service:
        for _ in range(50):
            answers = list(
                service.ModelStreamInfer(
                    iter([wrong] * 4), timeout=PATIENCE_S, metadata=(("triton_grpc_error", "true"),)
                )
            )
            assert [bool(answer.error_message) for answer in answers] == [True] * 4
    unharmed(target)
