"""A connection of a loop that waits for its sockets itself."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import pytest

from tests.client.wire.http2.conftest import Peer, Script
from tritonkit.client.wire.http2 import frames
from tritonkit.client.wire.http2.call import Call
from tritonkit.client.wire.http2.ending import answer_of
from tritonkit.client.wire.http2.polled_connection import PolledConnection
from tritonkit.errors import ServerUnavailable

Play = Callable[[Script], str]


def connected(address: str) -> PolledConnection:
    """To a peer of a test."""
    return PolledConnection(address, time.monotonic() + 10)


def ended(connection: PolledConnection, count: int = 1) -> list[Call]:
    """Wait for this many calls to end."""
    calls: list[Call] = []
    while len(calls) < count:
        connection.flush()
        select.select([connection], [connection] if connection.blocked else [], [], 10)
        calls += connection.read()
    return calls


def test_calls_share_a_connection(play: Play) -> None:
    """They end in the order in which the peer answers."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        first, second = peer.request(), peer.request()
        peer.send(peer.answer(second, b"two") + peer.answer(first, b"one"))
        peer.read(1)

    connection = connected(play(script))
    calls = [connection.begin("ModelInfer", [b"x"], 5.0) for _ in range(2)]
    assert ended(connection, 2) == calls[::-1]
    assert [bytes(answer_of(call) or b"") for call in calls] == [b"one", b"two"]
    connection.close()


def test_a_peer_that_hangs_up_ends_all_calls(play: Play) -> None:
    """Each with the reason, and no new one can begin."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.request()

    connection = connected(play(script))
    call = connection.begin("ModelInfer", [b"x"], 5.0)
    assert ended(connection) == [call]
    assert isinstance(connection.error(call, "ModelInfer", [b"x"], 5.0), ServerUnavailable)
    assert connection.lost
    with pytest.raises(ServerUnavailable):
        connection.begin("ModelInfer", [b"x"], 5.0)
    connection.close()


def test_no_server_and_no_http2(play: Play) -> None:
    """Both are said when the connection is made."""
    with pytest.raises(ServerUnavailable, match="Connection refused"):
        connected("127.0.0.1:9")
    with pytest.raises(ServerUnavailable, match="no HTTP/2 connection"):
        connected(play(lambda peer, number: peer.send(b"SSH-2.0-none\r\n" * 9)))
    with pytest.raises(ServerUnavailable, match="no answer in time"):
        PolledConnection(play(lambda peer, number: peer.read(10**6)), time.monotonic() + 0.2)


def test_a_limit_of_calls_is_said_and_a_message_waits_for_its_window(play: Play) -> None:
    """`full` until one has ended; a message goes on when the peer opens its window."""
    size = 100_000

    def script(peer: Peer, number: int) -> None:
        peer.greet({frames.MAX_CONCURRENT_STREAMS: 1})
        got, stream = 0, 0
        while got < size:
            kind, _, stream, payload = peer.frame()
            if kind == frames.DATA:
                got += len(payload)
                peer.send(frames.window_update(stream, len(payload)))
                peer.send(frames.window_update(0, len(payload)))
        peer.send(peer.answer(stream, b"all"))
        peer.read(1)

    connection = connected(play(script))
    assert not connection.full()
    call = connection.begin("ModelInfer", [b"x" * size], 5.0)
    assert connection.full()
    assert ended(connection) == [call]
    assert bytes(answer_of(call) or b"") == b"all"
    assert not connection.full()
    connection.close()


def test_a_call_that_is_given_up_is_reset_a_while_later(play: Play) -> None:
    """The reset does not follow immediately: see `GRACE_S`."""
    resets: list[int] = []

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.request()
        resets.append(peer.until(frames.RST_STREAM)[1])
        peer.send(peer.answer(peer.request(), b"next"))

    connection = connected(play(script))
    call = connection.begin("ModelInfer", [b"x"], 5.0)
    connection.flush()
    connection.cancel(call)
    while not call.ended:
        connection.reset_cancelled()
        connection.flush()
        time.sleep(0.01)
    following = connection.begin("ModelInfer", [b"x"], 5.0)
    while following not in ended(connection):
        pass
    assert resets == [call.number]
    connection.close()
