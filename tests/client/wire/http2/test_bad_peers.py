"""Peers that misbehave, over real sockets: a typed error, no hang, and the next call goes on."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.client.wire.kinds import Connect
from tritonkit.client.wire.http2 import frames
from tritonkit.errors import DeadlineExceeded, InferenceError, Overloaded, ServerStopping, ServerUnavailable

from .conftest import Peer, Script, prefixed

Play = Callable[[Script], str]


def serve(peer: Peer) -> None:
    """Answer every request with an empty message."""
    while True:
        peer.send(peer.answer(peer.request()))


def call(transport: Any, timeout_s: float = 5.0) -> bytes:
    """One small call."""
    return bytes(transport.send("ModelInfer", [b"hello"], timeout_s))


def test_something_else_than_http2(connect: Connect, play: Play) -> None:
    """Triton's HTTP port, say."""

    def script(peer: Peer, number: int) -> None:
        peer.sock.recv(65_536)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100)

    address = play(script)
    with pytest.raises(ServerUnavailable, match=r"no HTTP/2 connection.*broke HTTP/2's rules"):
        call(connect(address))


def test_a_peer_that_hangs_up_at_once(connect: Connect, play: Play) -> None:
    """A load balancer without a server, say."""
    with pytest.raises(ServerUnavailable, match="no HTTP/2 connection"):
        call(connect(play(lambda peer, _: peer.sock.close())))


def test_a_peer_that_never_speaks(connect: Connect, play: Play) -> None:
    """It is given up after the time for connecting, or the call's own if that is shorter."""
    silent = play(lambda peer, _: peer.read(10_000) and None)
    with pytest.raises(ServerUnavailable, match="no answer in time"):
        call(connect(silent, connect_timeout_s=0.2))
    with pytest.raises(DeadlineExceeded, match=r"no connection within 0\.2 s"):
        call(connect(silent), 0.2)
    with pytest.raises(DeadlineExceeded, match=r"no connection within 0\.2 s"):
        connect(silent).stream((), 0.2)


def test_garbage_amid_a_call(connect: Connect, play: Play) -> None:
    """The call ends; the next one gets a new connection."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        if number == 0:
            peer.request()
            peer.send(b"\xff" * 200)
        serve(peer)

    transport = connect(play(script))
    with pytest.raises(ServerUnavailable, match="broke HTTP/2's rules"):
        call(transport)
    assert call(transport) == b""


def test_half_an_answer_and_the_end(connect: Connect, play: Play) -> None:
    """A connection lost during an answer is reported, and the call is not repeated."""
    requests: list[int] = []

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        requests.append(peer.request())
        peer.send(peer.answer(1, b"x" * 1000)[:500])

    with pytest.raises(ServerUnavailable, match=r"closed the connection|was lost"):
        call(connect(play(script)))
    assert requests == [1]


def test_a_peer_that_says_nothing_after_the_request(connect: Connect, play: Play) -> None:
    """The deadline ends the call, and the peer is told so with a reset."""
    resets: list[tuple[int, bytes]] = []
    reset = threading.Event()

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.request()
        _, stream, payload = peer.until(frames.RST_STREAM)
        resets.append((stream, payload))
        reset.set()
        serve(peer)

    transport = connect(play(script))
    with pytest.raises(DeadlineExceeded):
        call(transport, 0.1)
    assert reset.wait(5)
    assert resets == [(1, struct.pack(">L", frames.CANCEL))]
    assert call(transport) == b""


@pytest.mark.parametrize(
    ("code", "error", "match"),
    [
        (frames.CANCEL, ServerStopping, r"reset the call \(CANCEL\)"),
        (2, InferenceError, r"reset the call \(INTERNAL_ERROR\)"),
        (99, InferenceError, r"reset the call \(99\)"),
        (frames.ENHANCE_YOUR_CALM, Overloaded, "ENHANCE_YOUR_CALM"),
    ],
)
def test_a_reset_call(connect: Connect, play: Play, code: int, error: type[Exception], match: str) -> None:
    """Only that call ends."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.send(frames.rst_stream(peer.request(), code))
        serve(peer)

    transport = connect(play(script))
    with pytest.raises(error, match=match):
        call(transport)
    assert call(transport) == b""


def test_a_refused_call_goes_again_a_few_times(connect: Connect, play: Play) -> None:
    """The peer says that it did nothing for it; one that refuses always is told apart."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.send(frames.rst_stream(peer.request(), frames.REFUSED_STREAM))
        serve(peer)

    def never(peer: Peer, number: int) -> None:
        peer.greet()
        while True:
            peer.send(frames.rst_stream(peer.request(), frames.REFUSED_STREAM))

    assert call(connect(play(script))) == b""
    with pytest.raises(ServerUnavailable, match="REFUSED_STREAM"):
        call(connect(play(never)))


def test_going_away_gracefully(connect: Connect, play: Play) -> None:
    """A call under way is answered, the next one made on a new connection; neither fails."""
    numbers: list[int] = []

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        stream = peer.request()
        numbers.append(number)
        if number == 0:
            peer.send(frames.frame(frames.GOAWAY, 0, 0, struct.pack(">LL", stream, 0)))
            time.sleep(0.05)
            peer.send(peer.answer(stream))
            return
        peer.send(peer.answer(stream))
        serve(peer)

    transport = connect(play(script))
    assert call(transport) == b""
    assert call(transport) == b""
    assert numbers == [0, 1]


def test_going_away_without_the_call(connect: Connect, play: Play) -> None:
    """A call above the last one the peer looked at goes to a new connection."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        if number == 0:
            peer.request()
            peer.send(frames.frame(frames.GOAWAY, 0, 0, struct.pack(">LL", 0, 11) + b"too_many_pings"))
        serve(peer)

    assert call(connect(play(script))) == b""


def test_going_away_from_everybody(connect: Connect, play: Play) -> None:
    """A server that takes no call at all is not there."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.request()
        peer.send(frames.goaway(0))

    with pytest.raises(ServerUnavailable, match=r"closing the connection \(NO_ERROR\)"):
        call(connect(play(script)))


def test_an_idle_connection_that_was_closed_is_noticed(connect: Connect, play: Play) -> None:
    """Before a call is sent on it."""

    closed = threading.Semaphore(0)

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.send(peer.answer(peer.request()))
        peer.sock.close()
        closed.release()

    transport = connect(play(script))
    for _ in range(3):
        assert call(transport) == b""
        assert closed.acquire(timeout=60)
        time.sleep(0.05)  # a connection that was used a moment ago is not looked at


def test_an_idle_connection_that_turns_out_dead(connect: Connect, play: Play) -> None:
    """The call that finds that out may have been read: it is not sent again. The next one is answered."""
    connections: list[int] = []

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        stream = peer.request()
        connections.append(number)
        peer.send(peer.answer(stream))
        peer.request()
        if number:
            peer.send(peer.answer(3))

    transport = connect(play(script))
    assert call(transport) == b""
    time.sleep(1.1)  # idle for long
    with pytest.raises(ServerUnavailable) as caught:
        call(transport)
    assert not caught.value.unprocessed
    assert connections == [0]
    assert call(transport) == b""
    assert connections == [0, 1]


def test_a_limit_of_calls_at_once_is_obeyed(connect: Connect, play: Play) -> None:
    """The others wait for their turn, within their time."""
    most = [0]

    def script(peer: Peer, number: int) -> None:
        peer.greet({3: 2})
        waiting: set[int] = set()
        while True:
            waiting.add(peer.request())
            most[0] = max(most[0], len(waiting))
            if len(waiting) == 2 or peer.sock.getsockname() is None:
                time.sleep(0.005)
                peer.send(b"".join(peer.answer(stream) for stream in sorted(waiting)))
                waiting.clear()

    transport = connect(play(script))
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(call, transport, 60.0) for _ in range(24)]
        assert [done.result(60) for done in calls] == [b""] * 24
    assert most == [2]


def test_waiting_for_a_turn_ends_with_the_time(connect: Connect, play: Play) -> None:
    """A peer that allows no call at all."""

    def script(peer: Peer, number: int) -> None:
        peer.greet({3: 0})
        peer.read(10_000)

    with pytest.raises(DeadlineExceeded, match=r"within 0\.1 s"):
        call(connect(play(script)), 0.1)


def test_a_turn_that_comes_free_by_another_giving_up(connect: Connect, play: Play) -> None:
    """The free place is taken immediately, although the peer says nothing."""
    begun = threading.Event()

    def script(peer: Peer, number: int) -> None:
        peer.greet({3: 1})
        peer.send(peer.answer(peer.request()))
        peer.request()
        begun.set()
        serve(peer)

    transport = connect(play(script))
    assert call(transport, 60.0) == b""
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(call, transport, 1.0)
        assert begun.wait(60)
        assert call(transport, 60.0) == b""
        with pytest.raises(DeadlineExceeded):
            late.result(60)


def test_two_calls_do_not_block_each_other_on_a_window(connect: Connect, play: Play) -> None:
    """A large request whose window is shut waits alone."""
    begun, small = threading.Event(), threading.Event()

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.send(frames.window_update(0, 2**20))  # only the stream's window will be shut
        ends, answered = 0, 0
        peer.until(frames.HEADERS)
        begun.set()
        while answered < 2:
            kind, flags, stream, _ = peer.frame()
            if kind == frames.DATA and flags & frames.END_STREAM:
                ends += 1
                answered += 1
                peer.send(peer.answer(stream))
                if ends == 1:
                    assert small.wait(60)
                    peer.send(frames.window_update(1, 2**20))
        serve(peer)

    transport = connect(play(script))
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(transport.send, "ModelInfer", [bytes(200_000)], 60.0)
        assert begun.wait(60)
        assert call(transport, 60.0) == b""
        assert not large.done()
        small.set()
        assert bytes(large.result(60)) == b""


def test_a_shut_window_ends_with_the_time(connect: Connect, play: Play) -> None:
    """Bytes that were not sent are not sent later either."""
    transport = connect(play(lambda peer, _: (peer.greet(), serve(peer))[0]))
    with pytest.raises(DeadlineExceeded):
        transport.send("ModelInfer", [bytes(200_000)], 0.1)
    stream = transport.stream()
    with pytest.raises(DeadlineExceeded, match=r"a message was not taken within 0\.1 s"):
        stream.write([bytes(200_000)], 0.1)
    stream.cancel()


def test_a_peer_that_does_not_read(connect: Connect, play: Play) -> None:
    """Its window is open, its socket full: the deadline holds all the same."""
    over = threading.Event()

    def script(peer: Peer, number: int) -> None:
        peer.greet({4: 2**31 - 1})
        peer.send(frames.window_update(0, 2**30))
        over.wait(60)

    transport = connect(play(script))
    piece = memoryview(bytes(2**20))
    with pytest.raises(DeadlineExceeded):
        transport.send("ModelInfer", [piece] * 64, 0.3)
    over.set()


def test_an_answer_before_the_request_is_whole(connect: Connect, play: Play) -> None:
    """An early error is reported immediately, and the rest is not sent."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        _, stream, _ = peer.until(frames.HEADERS)
        peer.send(peer.headers(stream, ends=True, status="200", grpc_status="8", grpc_message="full"))
        assert peer.until(frames.RST_STREAM)[1] == stream
        peer.send(frames.window_update(0, 65_535))
        serve(peer)

    transport = connect(play(script))
    with pytest.raises(Overloaded, match="RESOURCE_EXHAUSTED: full"):
        transport.send("ModelInfer", [bytes(200_000)], 5.0)
    assert call(transport) == b""


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (lambda peer: frames.frame(0, 0, 1, prefixed(b"x", 1)), "compressed message"),
        (lambda peer: frames.frame(0, 0, 1, prefixed(b"x" * 9)[:-4]), "ended early"),
        (lambda peer: frames.frame(0, 0, 1, prefixed(b"x") * 2), "more than one message in an answer of one"),
        (lambda peer: b"", "no message in an answer of one"),
        (lambda peer: frames.frame(0, 1, 1, prefixed(b"x")), "ended without a status"),
        (lambda peer: frames.frame(0, 0, 1, b"\0\xff\xff\xff\xff"), "4294967295 bytes"),
    ],
)
def test_answers_that_cannot_be_read(connect: Connect, play: Play, answer: Callable[[Peer], bytes], match: str) -> None:
    """A typed error for that call alone."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.request()
        peer.send(peer.headers(1, status="200") + answer(peer))
        peer.send(peer.headers(1, ends=True, grpc_status="0"))
        serve(peer)

    transport = connect(play(script))
    with pytest.raises(InferenceError, match=match):
        call(transport)
    assert call(transport) == b""


@pytest.mark.parametrize(
    ("status", "error", "match"),
    [
        ("503", ServerUnavailable, "the HTTP status 503"),
        ("401", InferenceError, "UNAUTHENTICATED: the HTTP status 401"),
        ("429", Overloaded, "the HTTP status 429"),
        ("404", InferenceError, "UNIMPLEMENTED"),
        ("302", InferenceError, "UNKNOWN"),
        ("200", InferenceError, "without a status"),
    ],
)
def test_answers_of_a_proxy(connect: Connect, play: Play, status: str, error: type[Exception], match: str) -> None:
    """Plain HTTP means what gRPC's table says; a proxy without a server is a server not there."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.send(peer.headers(peer.request(), ends=True, status=status, content_type="text/html"))
        serve(peer)

    with pytest.raises(error, match=match):
        call(connect(play(script)))


def test_many_connect_at_once_and_one_connection_is_made(connect: Connect, play: Play) -> None:
    """Calls that come while it is made wait for it; if it fails, all get the error."""
    made: list[int] = []

    def script(peer: Peer, number: int) -> None:
        made.append(number)
        time.sleep(0.1)
        peer.greet()
        serve(peer)

    transport = connect(play(script))
    with ThreadPoolExecutor(8) as pool:
        assert [c.result(10) for c in [pool.submit(call, transport) for _ in range(8)]] == [b""] * 8
    assert made == [0]
    tried: list[int] = []

    def say_nothing(peer: Peer, number: int) -> None:
        tried.append(number)
        peer.read(10_000)

    silent = connect(play(say_nothing), connect_timeout_s=1.0)
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(call, silent) for _ in range(8)]:
            with pytest.raises(ServerUnavailable):
                done.result(60)
    assert len(tried) < 8, "each made an attempt of its own"


def test_a_caller_with_little_time_does_not_fail_the_others(connect: Connect, play: Play) -> None:
    """Its attempt to connect ends with its time; those with more try on."""
    begun, over = threading.Event(), threading.Event()

    def script(peer: Peer, number: int) -> None:
        begun.set()
        assert over.wait(60)
        peer.greet()
        serve(peer)

    transport = connect(play(script), connect_timeout_s=60.0)
    with ThreadPoolExecutor(2) as pool:
        hasty = pool.submit(call, transport, 0.5)
        assert begun.wait(60)
        patient = pool.submit(call, transport, 60.0)
        with pytest.raises(DeadlineExceeded):
            hasty.result(60)
        over.set()
        assert patient.result(60) == b""


def test_a_silent_peer_is_asked_and_given_up(connect: Connect, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that vanished during a call is noticed before a long deadline."""
    for name in ("PING_AFTER_S", "PING_TIMEOUT_S"):
        monkeypatch.setattr(f"tritonkit.client.wire.http2.keepalive.{name}", 0.1)
    monkeypatch.setattr("tritonkit.client.wire.http2.socket_io.SLICE_S", 0.05)
    monkeypatch.setattr("tritonkit.client.wire.http2.task_connection._WATCH_S", 0.05)
    pings: list[bytes] = []

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.request()
        pings.append(peer.until(frames.PING)[2])
        peer.frame()

    with pytest.raises(ServerUnavailable, match="went silent"):
        call(connect(play(script)), 20.0)
    assert len(pings) == 1


def test_what_ends_by_itself_is_not_reset(connect: Connect, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton crashes now and then when a reset crosses an answer: an answer somewhat late is let be."""
    grace_s, over = 1.0, threading.Event()
    for module in ("connection", "task_connection", "thread_connection"):
        monkeypatch.setattr(f"tritonkit.client.wire.http2.{module}.GRACE_S", grace_s)
    kinds: list[int] = []

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.send(peer.answer(peer.request()))
        late = peer.request()
        assert over.wait(60)
        peer.send(peer.answer(late))
        while True:
            kind, flags, stream, _ = peer.frame()
            kinds.append(kind)
            if flags & frames.END_STREAM and kind == frames.DATA:
                peer.send(peer.answer(stream))

    transport = connect(play(script))
    assert call(transport) == b""
    with pytest.raises(DeadlineExceeded):
        call(transport, 0.3)
    over.set()
    time.sleep(grace_s + 0.1)
    assert call(transport) == b""
    assert frames.DATA in kinds
    assert frames.RST_STREAM not in kinds


def test_pings_and_settings_are_acknowledged(connect: Connect, play: Play) -> None:
    """All are acknowledged, also many of them and during calls."""
    acks: list[int] = []

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        stream = peer.request()
        for turn in range(50):
            peer.send(frames.frame(frames.PING, 0, 0, turn.to_bytes(8)))
            flags, _, payload = peer.until(frames.PING)
            assert flags == frames.ACK
            acks.append(int.from_bytes(payload))
        peer.send(frames.settings({1: 0, 4: 70_000, 5: 20_000}))
        assert peer.until(frames.SETTINGS)[0] == frames.ACK
        peer.send(peer.answer(stream))
        serve(peer)

    transport = connect(play(script))
    assert call(transport) == b""
    assert acks == list(range(50))
    assert call(transport) == b""


def test_bytes_one_at_a_time(connect: Connect, play: Play) -> None:
    """However a network cuts them."""

    def script(peer: Peer, number: int) -> None:
        peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.greet()
        for byte in peer.answer(peer.request(), b"answer"):
            peer.send(bytes((byte,)))

    assert call(connect(play(script))) == b"answer"
