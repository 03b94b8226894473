"""A server that falls silent under calls that another one can take over, and one that is only slow."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.client.wire.kinds import Connect
from tritonkit.client.wire.http2 import frames
from tritonkit.client.wire.http2.keepalive import Keepalive
from tritonkit.errors import DeadlineExceeded, ServerUnavailable

from .conftest import Peer, Script

Play = Callable[[Script], str]
LONG_S = 9.0
"""The timeout of a call: a test's duration if silence were not noticed."""
MIB = 2**20


class Elsewhere:
    """The reply to a call that asks whether to move, and the count of its questions."""

    def __init__(self, *says: bool) -> None:
        self.questions: list[bool] = []
        self._says = list(says)

    def __call__(self, begun: bool) -> bool:
        """The next thing to say; the last one again and again."""
        if not begun:
            return False
        self.questions.append(begun)
        return self._says[min(len(self.questions), len(self._says)) - 1]


def call(transport: Any, elsewhere: Any, body: bytes = b"hello", timeout_s: float = LONG_S) -> bytes:
    """One call."""
    return bytes(transport.send("ModelInfer", [body], timeout_s, (), elsewhere))


def silent(peer: Peer, _: int) -> None:
    """Reads, and says nothing more."""
    peer.greet()
    while True:
        peer.frame()


class Patient:
    """A peer that answers the first PINGs, and a request after this many of them."""

    def __init__(self, pings: int) -> None:
        self.pings = pings
        self.pings_read = 0

    def __call__(self, peer: Peer, _: int) -> None:
        """One connection."""
        peer.greet()
        stream = peer.request()
        while self.pings_read < self.pings:
            kind, flags, _, payload = peer.frame()
            if kind == frames.PING and not flags & frames.ACK:
                self.pings_read += 1
                peer.send(frames.frame(frames.PING, frames.ACK, 0, payload))
        peer.send(peer.answer(stream, b"late"))
        while True:
            peer.frame()


def test_a_call_leaves_a_silent_server(connect: Connect, play: Play) -> None:
    """Long before its time is over; the connection takes no more calls."""
    connections: list[int] = []

    def script(peer: Peer, number: int) -> None:
        connections.append(number)
        silent(peer, number)

    transport = connect(play(script))
    for _ in range(2):
        elsewhere = Elsewhere(True)
        with pytest.raises(ServerUnavailable, match="went silent") as caught:
            call(transport, elsewhere)
        assert elsewhere.questions == [True]
        assert not caught.value.unprocessed
    assert connections == [0, 1]


def test_a_call_that_has_nowhere_to_go_stays(connect: Connect, play: Play) -> None:
    """It is asked again and again, and gets its answer when that comes."""
    elsewhere = Elsewhere(False)

    def script(peer: Peer, _: int) -> None:
        peer.greet()
        stream = peer.request()
        while len(elsewhere.questions) < 3:
            peer.sock.settimeout(0.05)
            try:
                peer.frame()
            except TimeoutError:
                continue
        peer.send(peer.answer(stream, b"late"))

    assert call(connect(play(script)), elsewhere) == b"late"


def test_a_slow_server_that_is_there_is_left_in_peace(
    connect: Connect, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers PINGs, of which it gets two at most."""
    monkeypatch.setattr("tritonkit.client.wire.http2.keepalive.QUICK_TIMEOUT_S", LONG_S)  # for a busy machine
    elsewhere, server = Elsewhere(True), Patient(2)
    assert call(connect(play(server)), elsewhere) == b"late"
    assert elsewhere.questions == []
    assert server.pings_read == 2


def test_a_call_with_one_server_asks_nothing_so_soon(connect: Connect, play: Play) -> None:
    """It has no use for the answer."""
    server = Patient(1)
    with pytest.raises(DeadlineExceeded):
        call(connect(play(server)), None, timeout_s=1.0)
    assert server.pings_read == 0


@pytest.mark.slow
def test_a_large_request_on_its_way_is_no_silence(
    connect: Connect, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's system takes it slowly, and has not yet read the PING; silence of `longest_s` would end the call."""
    elsewhere, size, longest_s = Elsewhere(True), 8 * MIB, 2.0
    monkeypatch.setattr("tritonkit.client.wire.http2.keepalive.QUICK_TIMEOUT_S", longest_s)
    checks: list[float] = []
    overdue = threading.Event()
    is_silent = Keepalive.silent

    def noting(keepalive: Keepalive, now: float, round_trip_s: float) -> bool:
        checks.append(now)
        if now - checks[0] > longest_s:
            overdue.set()
        return is_silent(keepalive, now, round_trip_s)

    monkeypatch.setattr(Keepalive, "silent", noting)

    def script(peer: Peer, _: int) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 2**10)
        peer.greet({frames.INITIAL_WINDOW_SIZE: 2 * size, frames.MAX_FRAME_SIZE: 2**20})
        peer.send(frames.window_update(0, 2 * size))
        read = peer.sock.recv

        class Slow:
            def recv(self, _: int) -> bytes:
                overdue.wait(0.02)
                return read(32 * 2**10)

            def sendall(self, data: bytes) -> None:
                sendall(data)

        sendall = peer.sock.sendall
        peer.sock = Slow()  # type: ignore[assignment]
        peer.send(peer.answer(peer.request(), b"done"))

    assert call(connect(play(script)), elsewhere, bytes(size), 60.0) == b"done"
    assert overdue.is_set()
    assert elsewhere.questions == []


def test_a_call_that_waits_for_a_window_leaves_too(connect: Connect, play: Play) -> None:
    """Its request is larger than the server lets in before it falls silent."""
    elsewhere = Elsewhere(True)
    with pytest.raises(ServerUnavailable, match="went silent"):
        call(connect(play(silent)), elsewhere, bytes(MIB))
    assert elsewhere.questions == [True]


@pytest.fixture
def hole() -> Iterator[str]:
    """An address whose system answers nobody: its queue of connections is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield f"127.0.0.1:{address[1]}"


def test_a_connection_that_does_not_come_soon(connect: Connect, hole: str) -> None:
    """A call that can go elsewhere does, and is told that nobody has begun with it; another one waits."""
    transport = connect(hole)
    with pytest.raises(ServerUnavailable, match="no answer in time") as caught:
        call(transport, lambda begun: not begun, timeout_s=4.0)
    assert caught.value.unprocessed
    with pytest.raises(DeadlineExceeded):
        call(transport, lambda _: False, timeout_s=1.0)
