"""The wire with a real Triton: what its own gRPC library does on the connection."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from tests.client.wire.kinds import Connect
from tests.server.models import ModelText, write_repository
from tests.waiting import PATIENCE_S
from tritonkit.client.wire.http2.keepalive import QUICK_AFTER_S
from tritonkit.errors import ClientError, DeadlineExceeded, InferenceError, ModelNotFound
from tritonkit.serve import Endpoint, serve

from .tap import Tap, tapped

pytestmark = pytest.mark.needs("triton")

MIB = 2**20
TEXT = """backend: "python"
input { name: "x" data_type: TYPE_STRING dims: [1] }
output { name: "y" data_type: TYPE_STRING dims: [1] }
"""
LARGE = f"""backend: "python"
input {{ name: "x" data_type: TYPE_UINT8 dims: [{16 * MIB}] }}
output {{ name: "y" data_type: TYPE_UINT8 dims: [{16 * MIB}] }}
"""
ECHO = """import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # y is x; "wait" takes half a second, "wait long" three times as long, "fail" fails.
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            if x.dtype == np.uint8:
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
                continue
            if x[0].startswith(b"wait"):
                time.sleep(1.5 if x[0] == b"wait long" else 0.5)
            if x[0] == b"fail":
                error = pb_utils.TritonError('50 % of "x",\\nü 模型')
                answers.append(pb_utils.InferenceResponse(error=error))
            else:
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
        return answers
"""


@pytest.fixture(scope="module")
def endpoint(project: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A server of two models, which answer what they are sent; one declares that it is large."""
    folder = tmp_path_factory.mktemp("wire") / "repository"
    models = {"echo": ModelText(TEXT, ECHO), "large": ModelText(LARGE, ECHO)}
    write_repository(folder, models)
    with serve(folder, grpc_port=0, metrics_port=0, root=project) as running:
        yield running


@pytest.fixture
def transport(connect: Connect, endpoint: Endpoint) -> Any:
    """To that server."""
    return connect(endpoint.grpc)


def body(data: bytes, model: str = "echo") -> list[bytes]:
    """A request."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype="BYTES", shape=[1])
    request.raw_input_contents.append(len(data).to_bytes(4, "little") + data)
    return [request.SerializeToString()]


def call(transport: Any, data: bytes = b"x", timeout_s: float = 60.0) -> bytes:
    """What was answered."""
    answer = bytes(transport.send("ModelInfer", body(data), timeout_s))
    return service_pb2.ModelInferResponse.FromString(answer).raw_output_contents[0][4:]


@pytest.mark.parametrize("size", [0, 1, 16 * 2**10, MIB])
def test_a_message_of_any_size(transport: Any, size: int) -> None:
    """Both ways, and small calls before and after it on the same connection."""
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    for message in (b"first", data, b"last"):
        assert call(transport, message) == message


def test_messages_of_16_mib(transport: Any) -> None:
    """Both ways, to a model whose configuration says so: its server has planned for them."""
    data = bytes(range(256)) * (16 * MIB // 256)
    request = service_pb2.ModelInferRequest(model_name="large")
    request.inputs.add(name="x", datatype="UINT8", shape=[len(data)])
    request.raw_input_contents.append(data)
    for _ in range(2):
        answer = bytes(transport.send("ModelInfer", [request.SerializeToString()], 60.0))
        assert service_pb2.ModelInferResponse.FromString(answer).raw_output_contents[0] == data
        assert call(transport) == b"x"


def test_many_calls_at_once(transport: Any) -> None:
    """Small and large ones mixed: each caller gets its own answer."""

    def caller(number: int) -> bool:
        data = str(number).encode() * (1 if number % 4 else 50_000)
        return all(call(transport, data) == data for _ in range(5))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(caller, range(32)))


def test_errors(transport: Any) -> None:
    """Trailers alone, with a message that gRPC had to escape."""
    with pytest.raises(InferenceError) as caught:
        call(transport, b"fail")
    assert '50 % of "x",\nü 模型' in caught.value.found
    with pytest.raises(ModelNotFound, match="none"):
        transport.send("ModelInfer", body(b"x", "none"), 60.0)
    assert call(transport) == b"x"


def test_a_call_given_up(transport: Any) -> None:
    """The connection lives on."""
    for _ in range(3):
        with pytest.raises(DeadlineExceeded):
            call(transport, b"wait", 0.1)
        assert call(transport) == b"x"


def test_a_stream(transport: Any) -> None:
    """Messages both ways; an answer that is an error does not end it."""
    stream = transport.stream()
    for data in (b"one", b"fail", bytes(MIB)):
        stream.write(body(data), 60.0)
        answer = service_pb2.ModelStreamInferResponse.FromString(bytes(stream.read(60.0)))
        assert bool(answer.error_message) is (data == b"fail")
    stream.end()
    assert stream.read(60.0) is None


def test_a_silent_server_is_asked_and_answers(
    connect: Connect, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that takes long is kept alive by a PING, and ends well."""
    monkeypatch.setattr("tritonkit.client.wire.http2.keepalive.PING_AFTER_S", 0.1)
    monkeypatch.setattr("tritonkit.client.wire.http2.socket_io.SLICE_S", 0.05)
    monkeypatch.setattr("tritonkit.client.wire.http2.task_connection._WATCH_S", 0.05)
    with tapped(endpoint.grpc) as tap:
        transport = connect(tap.address)
        assert call(transport, b"wait") == b"wait"
        assert call(transport) == b"x"
        assert tap.count("Ping", "ACK") > 0


def asked(connect: Connect, endpoint: Endpoint, patch: pytest.MonkeyPatch, after_s: tuple[float, ...]) -> Tap:
    """What a server said that was asked so often in each of four calls that another could take over."""
    patch.setattr("tritonkit.client.wire.http2.keepalive.QUICK_AFTER_S", after_s)
    patch.setattr("tritonkit.client.wire.http2.keepalive.QUICK_TIMEOUT_S", PATIENCE_S)
    patch.setattr("tritonkit.client.wire.http2.socket_io.SLICE_S", 0.02)
    patch.setattr("tritonkit.client.wire.http2.task_connection.SLICE_S", 0.02)
    with tapped(endpoint.grpc) as tap:
        transport = connect(tap.address)
        for _ in range(4):
            with suppress(ClientError):
                transport.send("ModelInfer", body(b"wait long"), 60.0, (), lambda _: False)
        return tap


def test_a_server_does_not_mind_being_asked_twice_in_each_call(
    connect: Connect, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is said meanwhile, and no connection ends."""
    assert len(QUICK_AFTER_S) == 2
    tap = asked(connect, endpoint, monkeypatch, (0.05, 0.05))
    assert tap.count("Ping", "ACK") == 8
    assert tap.count("GoAway") == 0
    assert len(tap.written) == 1


def test_a_server_minds_being_asked_more_often(
    connect: Connect, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the connection, with all its calls: that is why."""
    assert asked(connect, endpoint, monkeypatch, (0.05,) * 6).count("GoAway") > 0


def test_a_server_that_stops(connect: Connect, project: Any, tmp_path: Any) -> None:
    """Calls under way are answered or end with an error of ours, and the next one as well."""
    write_repository(tmp_path / "repository", {"echo": ModelText(TEXT, ECHO)})
    with ThreadPoolExecutor(4) as pool:
        with serve(tmp_path / "repository", grpc_port=0, metrics_port=0, root=project) as running:
            transport = connect(running.grpc)
            assert call(transport) == b"x"
            calls = [pool.submit(call, transport, b"wait") for _ in range(4)]
        for done in calls:
            error = done.exception(60)
            assert error is None or isinstance(error, ClientError)
        with pytest.raises(ClientError):
            call(transport)
