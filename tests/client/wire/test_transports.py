"""The contract of a transport, held by every kind: what it does with a real gRPC server."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.waiting import eventually
from tritonkit.client.wire.http2.connection import GRACE_S
from tritonkit.client.wire.secure import Secret
from tritonkit.errors import (
    ClientError,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    Overloaded,
    ServerUnavailable,
    UsageError,
)

from .grpc_servers import Answers, body, data_of, grpc_server
from .kinds import Connect

SPECIAL = {
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: Overloaded,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
}


@pytest.mark.parametrize("size", [0, 1, 16_000, 16_384, 65_536, 70_000, 3_000_000])
def test_a_message_comes_back_as_it_went(connect: Connect, address: str, size: int) -> None:
    """Also one of many frames, larger than the windows at the start."""
    data = bytes(range(256)) * (size // 256 + 1)
    transport = connect(address)
    for _ in range(3):
        assert data_of(transport.send("ModelInfer", body(data=data[:size]), 20.0)) == data[:size]


def test_a_message_in_pieces_is_one_message(connect: Connect, address: str) -> None:
    """The pieces follow each other; empty ones and views of several axes are no matter."""
    (whole,) = body(data=b"0123456789" * 10_000)
    view = memoryview(whole)
    pieces = [bytes(view[:10]), view[10:10], memoryview(bytes(view[10:50_010])).cast("B", (10, 5000))]
    transport = connect(address)
    assert data_of(transport.send("ModelInfer", [*pieces, view[50_010:]], 20.0)) == b"0123456789" * 10_000
    small = [whole[:3], b"", memoryview(whole)[3:]]
    assert data_of(transport.send("ModelInfer", small, 20.0)) == b"0123456789" * 10_000


@pytest.mark.parametrize("code", [c for c in grpc.StatusCode if c is not grpc.StatusCode.OK])
def test_every_status_has_an_error_of_ours(connect: Connect, address: str, code: grpc.StatusCode) -> None:
    """Whatever a server or a model answers, with its own words, and where; the code by itself, too."""
    with pytest.raises(SPECIAL.get(code, InferenceError)) as caught:
        connect(address).send("ModelInfer", body(code.name), 5.0)
    assert isinstance(caught.value, ClientError)
    assert caught.value.where == f"model {code.name} at {address}"
    if code is not grpc.StatusCode.DEADLINE_EXCEEDED:
        assert caught.value.found == f"{code.name}: as asked: 50 % ü"
        assert caught.value.code == code.name


@pytest.mark.slow
def test_the_deadline_is_kept_and_the_server_told(connect: Connect, address: str, answers: Answers) -> None:
    """The call ends on time, says how long it was allowed, and is soon cancelled at the server."""
    transport = connect(address)
    transport.send("ServerLive", [b""], 20.0)
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"no answer within 1 s"):
        transport.send("ModelInfer", body("slow", id="60"), 1.0)
    assert time.monotonic() - started > 0.99
    assert answers.cancelled.wait(60)
    assert answers.left_s[0] <= 1.0 + GRACE_S


def test_a_call_after_one_that_was_late(connect: Connect, address: str) -> None:
    """Giving up one call leaves the connection whole for others."""
    transport = connect(address)
    for _ in range(3):
        with pytest.raises(DeadlineExceeded):
            transport.send("ModelInfer", body("slow", id="60"), 0.05)
        assert data_of(transport.send("ModelInfer", body(data=b"x"), 10.0)) == b"x"


def test_many_callers_share_one_connection(connect: Connect, address: str) -> None:
    """Each gets its own answer, small and large ones mixed."""
    transport = connect(address)

    def caller(number: int) -> bool:
        data = str(number).encode() * (1 if number % 3 else 30_000)
        return all(data_of(transport.send("ModelInfer", body(data=data), 30.0)) == data for _ in range(10))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(caller, range(32)))


def test_a_slow_call_does_not_hold_up_a_fast_one(connect: Connect, address: str, answers: Answers) -> None:
    """The thread that waits longest reads for the others too."""
    transport = connect(address)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(transport.send, "ModelInfer", body("slow", b"s", id="60"), 90.0)
        assert answers.slow.wait(60)
        for _ in range(5):
            assert data_of(transport.send("ModelInfer", body(data=b"f"), 20.0)) == b"f"
        assert not slow.done()
        answers.go_on.set()
        assert data_of(slow.result(60)) == b"s"


def test_own_metadata_and_the_key_go_where_they_should(connect: Connect, address: str, answers: Answers) -> None:
    """Metadata with every call; the key with calls that a server may restrict, only."""
    transport = connect(address, headers=(("x-own", "a b"), ("x-api-key", Secret("hidden"))), admin_key="k")
    for _ in range(3):
        transport.send("ModelInfer", body(), 5.0, (("traceparent", "00-1"),))
    transport.send("RepositoryIndex", [b""], 5.0)
    *infers, index = answers.metadata
    assert all(headers["x-own"] == "a b" and headers["x-api-key"] == "hidden" for headers in infers)
    assert all(headers["traceparent"] == "00-1" for headers in infers)
    assert not any("triton-grpc-protocol-admin-key" in headers for headers in infers)
    assert index["triton-grpc-protocol-admin-key"] == "k"
    assert "traceparent" not in index


def test_nobody_at_the_address(connect: Connect) -> None:
    """A closed port is reported immediately."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ServerUnavailable, match=r"cannot connect: .*refused"):
        connect(address).send("ServerLive", [b""], 5.0)


def test_a_name_that_nobody_knows(connect: Connect) -> None:
    """Told as that."""
    with pytest.raises(ServerUnavailable, match=r"the name no-such-host\.invalid is not known"):
        connect("no-such-host.invalid:8001").send("ServerLive", [b""], 20.0)


def test_a_server_that_comes_back_is_called_again(connect: Connect, answers: Answers) -> None:
    """Idle or in a call, the next call makes a new connection; nothing need be said."""
    with grpc_server(answers) as (_, port):
        transport = connect(f"127.0.0.1:{port}")
        transport.send("ServerLive", [b""], 5.0)
    time.sleep(0.05)
    with pytest.raises(ServerUnavailable):
        transport.send("ServerLive", [b""], 5.0)
    with grpc_server(answers, port=port):
        transport.send("ServerLive", [b""], 5.0)


def test_a_server_that_stops_ends_the_calls_it_cuts(connect: Connect, answers: Answers) -> None:
    """An error and no hang."""
    with ThreadPoolExecutor(1) as pool:
        with grpc_server(answers) as (server, port):
            transport = connect(f"127.0.0.1:{port}")
            cut = pool.submit(transport.send, "ModelInfer", body("slow", id="60"), 90.0)
            assert answers.slow.wait(60)
            server.stop(grace=None)
        with pytest.raises(ClientError):
            cut.result(60)


def test_closing_ends_calls_under_way(connect: Connect, address: str, answers: Answers) -> None:
    """One that waits when another closes the client gets an error, and does not hang."""
    transport = connect(address)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(transport.send, "ModelInfer", body("slow", id="60"), 90.0) for _ in range(3)]
        eventually(lambda: len(answers.metadata) == 3)
        closing = transport.transport.close if hasattr(transport, "transport") else transport.close
        transport.do(closing()) if hasattr(transport, "do") else closing()
        for call in waiting:
            with pytest.raises(InferenceError, match="closed while the call was under way"):
                call.result(60)
        with pytest.raises(UsageError, match="it was closed"):
            transport.send("ServerLive", [b""], 5.0)


def test_a_message_too_large_for_protobuf_is_refused(connect: Connect, address: str) -> None:
    """2 GiB are told before anything is sent."""
    piece = memoryview(bytes(2**20))
    with pytest.raises(InvalidInput, match="2147483647 bytes, protobuf's limit"):
        connect(address).send("ModelInfer", [piece] * 2048, 5.0)


def test_a_stream_both_ways(connect: Connect, address: str) -> None:
    """Messages come in order, several for one request, until None says the end."""
    stream = connect(address).stream()
    stream.write(body(data=b"one", id="3"))
    assert len([stream.read(5.0) for _ in range(3)]) == 3
    stream.write(body(data=b"two" * 100_000))
    assert len(stream.read(5.0)) > 300_000
    with pytest.raises(DeadlineExceeded, match="no message within"):
        stream.read(0.05)
    stream.end()
    assert stream.read(5.0) is None
    assert stream.read(5.0) is None
    with pytest.raises(InferenceError, match="the stream has ended"):
        stream.write(body())
    stream.cancel()


def test_a_stream_that_the_server_ends_with_an_error(connect: Connect, address: str) -> None:
    """The messages before it are read first."""
    stream = connect(address).stream()
    stream.write(body(data=b"one"))
    stream.write(body("fail"))
    assert stream.read(5.0) is not None
    with pytest.raises(InferenceError, match="INTERNAL: as asked"):
        stream.read(5.0)
    with pytest.raises(InferenceError, match="INTERNAL: as asked"):
        stream.write(body())


def test_cancelling_a_stream_reaches_the_server(connect: Connect, address: str, answers: Answers) -> None:
    """Reading on says so; cancelling again is nothing."""
    stream = connect(address).stream()
    stream.write(body(data=b"one"))
    assert stream.read(5.0) is not None
    stream.cancel()
    assert answers.cancelled.wait(5)
    with pytest.raises(InferenceError, match="cancelled"):
        stream.read(5.0)
    with pytest.raises(InferenceError, match="cancelled"):
        stream.write(body())
    stream.end()
    stream.cancel()


def test_a_stream_read_slowly_does_not_hold_up_calls(connect: Connect, address: str) -> None:
    """80 MB unread are more than the stream's window: the server waits, other calls do not."""
    transport = connect(address)
    stream = transport.stream()
    piece = bytes(4 * 2**20)
    stream.write(body(data=piece, id="20"))
    stream.end()
    time.sleep(0.3)
    for _ in range(3):
        assert data_of(transport.send("ModelInfer", body(data=b"x"), 10.0)) == b"x"
    for _ in range(20):
        message = stream.read(20.0)
        assert message is not None
        assert len(message) > len(piece)
    assert stream.read(20.0) is None


def test_the_one_who_waits_is_not_woken_for_others(connect: Connect, address: str) -> None:
    """Threads that come and go with deadlines of their own lose no answer."""
    transport = connect(address)
    errors: list[BaseException] = []

    def caller(number: int) -> None:
        try:
            for turn in range(15):
                late = (number + turn) % 4 == 0
                try:
                    transport.send("ModelInfer", body("slow", id="0.02"), 0.01 if late else 20.0)
                except DeadlineExceeded:
                    assert late
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=caller, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors


def test_what_a_client_shows_hides_its_secrets(connect: Connect, address: str) -> None:
    """Neither the transport nor an error shows a key."""
    transport: Any = connect(address, headers=(("authorization", Secret("Bearer hush")),))
    with pytest.raises(InferenceError) as caught:
        transport.send("ModelInfer", body("INTERNAL"), 5.0)
    assert "hush" not in f"{transport!r} {vars(transport)} {caught.value} {vars(caught.value)}"
