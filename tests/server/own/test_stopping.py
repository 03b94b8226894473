"""While a real Triton ends, callers with one connection are told to go elsewhere, and nothing else."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.server.models import await_begun, ensemble, held, write_repository
from tests.server.own.test_serve import FREE
from tests.server.steady import steady
from tests.waiting import PATIENCE_S, eventually
from tritonkit.serve import Server

PER_S = 200
REFUSED = "UNAVAILABLE: Server is stopping, scheduler for model has stopped accepting new inference requests"
"""Triton's own words for a request that it has not begun with."""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that lets requests that take time go on."""
    return tmp_path / "gate"


@pytest.fixture
def stopping(tmp_path: Path, begun: Path, gate: Path) -> Path:
    """A model, one of whose two instances may be held, and an ensemble that calls it twice."""
    models = {"one": held(begun, gate, 2), "both": ensemble("one", "one")}
    return write_repository(tmp_path / "stopping", models)


def infer(model: str, seconds: float = 0.0) -> Any:
    """A vector whose first value is how long each step takes."""
    made = service_pb2.ModelInferRequest(model_name=model)
    made.inputs.add(name="x", datatype="FP32").shape.extend([1, 4])
    made.raw_input_contents.append(struct.pack("<4f", seconds, 1, 2, 3))
    return made


def outcome_of(ask: Any, request: Any) -> str:
    """`OK`, or the status and its words."""
    try:
        ask(request, timeout=PATIENCE_S)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "OK"


KINDS = {
    "ModelInfer": infer,
    "ModelMetadata": lambda name: service_pb2.ModelMetadataRequest(name=name),
    "ModelConfig": lambda name: service_pb2.ModelConfigRequest(name=name),
}


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("model", ["one", "both"])
def test_a_server_that_ends_is_unavailable(stopping: Path, begun: Path, gate: Path, what: str, model: str) -> None:
    """200 calls a second on one connection all the while: each is answered or UNAVAILABLE, in the words that say that
    the server has not begun, and what was in flight is answered."""
    server = Server(stopping, **FREE, drain_timeout_s=PATIENCE_S)
    with grpc.insecure_channel(server.start().grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        ask, request = getattr(stub, what), KINDS[what](model)
        with steady(lambda: outcome_of(ask, request), PER_S) as stream:
            eventually(lambda: stream.answers["OK"] > 0)
            # It is held: the server cannot end before calls came that it refuses.
            slow = stub.ModelInfer.future(infer("both", 0.5))
            await_begun(begun)
            with ThreadPoolExecutor(1) as pool:
                stopped = pool.submit(server.stop)
                try:
                    eventually(lambda: stream.answers[REFUSED] > 0, "calls that are refused")
                finally:
                    gate.touch()
                stopped.result(PATIENCE_S)
        assert struct.unpack("<4f", slow.result().raw_output_contents[0]) == (0.5, 1, 2, 3)
    assert {word.partition(":")[0] for word in stream.answers} == {"OK", "UNAVAILABLE"}
    assert stream.failures == []
