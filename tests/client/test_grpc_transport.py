"""Where gRPC's words become ours."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tritonkit.client import Client
from tritonkit.client.grpc_transport import GrpcTransport, parse_address, translate
from tritonkit.errors import (
    ClientError,
    DeadlineExceeded,
    InferenceError,
    ModelNotFound,
    ServerUnavailable,
    UsageError,
)

SPECIAL = {
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: ModelNotFound,
    grpc.StatusCode.UNAVAILABLE: ServerUnavailable,
}


class _Answers(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Ends every inference with the status its model name spells, or waits for `SLOW`."""

    live = True

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        return service_pb2.ServerLiveResponse(live=self.live)

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        if request.model_name == "SLOW":
            time.sleep(1)
        context.abort(getattr(grpc.StatusCode, request.model_name), "as asked")


@pytest.fixture
def answers() -> Iterator[tuple[_Answers, GrpcTransport]]:
    """A real server that fails as asked, and a transport to it."""
    servicer = _Answers()
    server = grpc.server(ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    transport = GrpcTransport(f"127.0.0.1:{port}")
    yield servicer, transport
    transport.close()
    server.stop(grace=None).wait(5)


def infer(transport: GrpcTransport, name: str, timeout_s: float = 5.0) -> Any:
    """One inference."""
    return transport.call("ModelInfer", service_pb2.ModelInferRequest(model_name=name), timeout_s)


@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_every_status_has_an_error_of_ours(code: grpc.StatusCode) -> None:
    """Also a status that a later gRPC adds: the test walks over all there are."""
    error = translate(code, "words", "there")
    assert isinstance(error, ClientError)
    assert type(error) is SPECIAL.get(code, InferenceError)
    assert "words" in str(error)


@pytest.mark.parametrize("code", [c for c in grpc.StatusCode if c is not grpc.StatusCode.OK])
def test_every_status_is_translated_on_the_wire(answers: Any, code: grpc.StatusCode) -> None:
    """Whatever a server answers, a gRPC error never reaches the caller."""
    servicer, transport = answers
    servicer.live = False
    with pytest.raises(SPECIAL.get(code, InferenceError)) as caught:
        infer(transport, code.name)
    assert "127.0.0.1" in caught.value.where
    assert isinstance(caught.value.__cause__, grpc.RpcError)


def test_a_full_queue_is_not_a_missing_server(answers: Any) -> None:
    """Triton says UNAVAILABLE for a full queue: while it lives that is an answer to this request."""
    _, transport = answers
    with pytest.raises(InferenceError, match="turned this request away"):
        infer(transport, "UNAVAILABLE")


def test_the_deadline_is_kept_and_told(answers: Any) -> None:
    """The call ends on time and says how long it was allowed."""
    _, transport = answers
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.2 s"):
        infer(transport, "SLOW", timeout_s=0.2)
    assert time.monotonic() - started < 0.9


def test_a_server_that_is_not_triton_is_told_apart(answers: Any) -> None:
    """A gRPC server without the method points at the port, not at the model."""
    _, transport = answers
    request = service_pb2.ServerReadyRequest()
    with pytest.raises(InferenceError, match="gRPC port of a Triton"):
        transport.call("ServerReady", request, 5.0)


def test_nobody_at_the_address() -> None:
    """A closed port is told at once, and readiness is False rather than an error."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with Client(address) as client:
        assert not client.is_ready()
        with pytest.raises(ServerUnavailable, match="check that Triton runs there"):
            client.model("digits")


def test_closing_ends_calls_under_way(answers: Any) -> None:
    """A thread that waits when another closes the client gets an error, and does not hang."""
    _, transport = answers
    errors: list[Exception] = []

    def wait() -> None:
        try:
            infer(transport, "SLOW", timeout_s=10)
        except (ClientError, UsageError) as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    transport.close()
    thread.join(5)
    assert len(errors) == 1
    assert "closed" in str(errors[0])


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("127.0.0.1:8001", "127.0.0.1:8001"),
        ("triton:8001", "triton:8001"),
        ("grpc://triton.example.com:8001/", "triton.example.com:8001"),
        ("[::1]:8001", "[::1]:8001"),
    ],
)
def test_addresses(address: str, target: str) -> None:
    """A host and a port, with or without the scheme."""
    assert parse_address(address) == target


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        ":8001",
        "host:",
        "host:0",
        "host:99999",
        "host:port",
        "::1:8001",
        "a b:1",
        "grpc://",
        "unix:/run/s",
        "host:8001/v2",
    ],
)
def test_addresses_that_are_none(address: str) -> None:
    """What lacks a host or a port is refused before anything is sent."""
    with pytest.raises(UsageError, match="host:port"):
        Client(address)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8000", "https://triton:8000"])
def test_http_is_pointed_to_grpc(address: str) -> None:
    """Triton's other port is a common mistake: the message says which one to use."""
    with pytest.raises(UsageError, match="gRPC port, 8001"):
        Client(address)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told_and_does_not_hang(serve: Any, models: Any) -> None:
    """In a fork of the process that made it, a client refuses instead of waiting for ever."""
    program = textwrap.dedent("""
        import os, sys, warnings
        warnings.simplefilter("ignore")
        from tritonkit.client import Client
        from tritonkit.errors import UsageError

        client = Client(sys.argv[1])
        model = client.model("digits")
        if (child := os.fork()) == 0:
            try:
                model.predict(image=b"1")
            except UsageError as error:
                client.close()
                os._exit(7 if "one Client per process" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print(model.predict(image=b"22")["label"].item())
        client.close()
    """)
    with serve(models) as address:
        done = subprocess.run(
            [sys.executable, "-c", program, address],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 0, done.stderr
    assert "b'2'" in done.stdout
