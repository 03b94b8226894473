"""The pure connection: its windows, its limits, and a peer that sends anything at all."""

from __future__ import annotations

import struct

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritonkit.client.wire.http2 import frames
from tritonkit.client.wire.http2.call import Call
from tritonkit.client.wire.http2.connection import WINDOW, Connection, Draining
from tritonkit.client.wire.http2.headers import RequestHeaders

HELLO = frames.settings({})
LONGEST = 2**31 - 1


def prefixed(message: bytes) -> bytes:
    """A message as gRPC sends it."""
    return struct.pack(">BL", 0, len(message)) + message


def block(**fields: str) -> bytes:
    """Header fields that touch no table."""
    return b"".join(
        b"\x00" + bytes((len(n),)) + n + bytes((len(v),)) + v
        for n, v in ((k.replace("_", "-").encode(), v.encode()) for k, v in fields.items())
    )


def made() -> Connection:
    """A connection whose peer has said hello, with nothing left to send."""
    connection = Connection(RequestHeaders("h:1", False))
    connection.receive(HELLO)
    sent(connection)
    return connection


def begun(connection: Connection, data: bytes | None = b"x") -> Call:
    """A call with that message, or a stream."""
    body = None if data is None else [data]
    return connection.open("ModelInfer", body, len(data or b""), 5.0)


def sent(connection: Connection) -> list[tuple[int, int, int, bytes]]:
    """The frames waiting to be sent: kind, flags, stream, payload."""
    data = b"".join(connection.writer.out).removeprefix(frames.PREFACE)
    connection.writer.out = []
    sent_frames = []
    while data:
        high, low, kind, flags, stream = frames.HEAD.unpack_from(data)
        size = high << 16 | low
        sent_frames.append((kind, flags, stream, data[9 : 9 + size]))
        data = data[9 + size :]
    return sent_frames


def answer(stream: int, message: bytes = b"y") -> bytes:
    """A whole answer."""
    return (
        frames.frame(frames.HEADERS, 4, stream, b"\x88")
        + frames.frame(frames.DATA, 0, stream, prefixed(message))
        + frames.frame(frames.HEADERS, 5, stream, block(grpc_status="0"))
    )


def test_the_start() -> None:
    """The preface, settings, and a larger window."""
    connection = Connection(RequestHeaders("h:1", False))
    assert bytes(connection.writer.out[0]).startswith(frames.PREFACE)
    kinds = [kind for kind, *_ in sent(connection)]
    assert kinds == [frames.SETTINGS, frames.WINDOW_UPDATE]
    assert not connection.greeted.ready


@given(cuts=st.lists(st.integers(1, 60), max_size=30))
def test_an_answer_is_read_however_it_is_cut(cuts: list[int]) -> None:
    """Frames may arrive in any pieces."""
    connection = made()
    call = begun(connection)
    data = answer(1, b"m" * 40)
    woken = []
    for cut in [*cuts, len(data)]:
        woken += connection.receive(data[:cut])
        data = data[cut:]
    assert woken == [call]
    assert (call.status, call.answer) == (0, b"m" * 40)
    assert not connection.calls


@given(
    messages=st.lists(st.binary(max_size=50), max_size=8),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    padding=st.integers(0, 20),
)
def test_messages_are_put_together_from_frames(messages: list[bytes], sizes: list[int], padding: int) -> None:
    """A frame may hold a part of a message or several; padding is dropped."""
    connection = made()
    call = begun(connection, None)
    data = b"".join(prefixed(message) for message in messages)
    turn = 0
    while data:
        size = sizes[turn % len(sizes)]
        turn += 1
        piece, data = data[:size], data[size:]
        if turn % 2 and padding:
            padded = bytes((padding,)) + piece + bytes(padding)
            connection.receive(frames.frame(frames.DATA, frames.PADDED, 1, padded))
        else:
            connection.receive(frames.frame(frames.DATA, 0, 1, piece))
    assert [bytes(m) for m in iter(lambda: connection.read(call), None)] == messages


def test_header_fields_in_several_frames() -> None:
    """CONTINUATION, padding and priority."""
    connection = made()
    call = begun(connection)
    whole = block(grpc_status="5", grpc_message="m" * 100)
    first = b"\x02" + bytes(5) + whole[:10] + bytes(2)
    flags = frames.END_STREAM | frames.PADDED | frames.PRIORITY_FLAG
    connection.receive(frames.frame(frames.HEADERS, flags, 1, first))
    connection.receive(frames.frame(frames.CONTINUATION, 0, 1, whole[10:50]))
    assert connection.receive(frames.frame(frames.CONTINUATION, 4, 1, whole[50:])) == [call]
    assert (call.status, call.message) == (5, "m" * 100)


def test_a_request_waits_for_its_windows() -> None:
    """Sent bytes never pass the stream's window or the connection's, and all are sent in the end."""
    connection = made()
    data = bytes(range(256)) * 1000
    call = begun(connection, data)
    room = connection.writer.push(call, LONGEST)
    assert room is not None
    got = [f for f in sent(connection) if f[0] == frames.DATA]
    assert sum(len(f[3]) for f in got) == 65_535
    assert max(len(f[3]) for f in got) == 16_384
    assert connection.receive(frames.window_update(0, 10**6)) == []
    assert connection.receive(frames.window_update(1, 100_000)) == [room]
    room = connection.writer.push(call, LONGEST)
    assert room is not None
    assert connection.receive(frames.settings({4: 10**6, 5: 100_000})) == [room]
    assert connection.writer.push(call, LONGEST) is None
    got += [f for f in sent(connection) if f[0] == frames.DATA]
    assert b"".join(f[3] for f in got) == prefixed(data)
    assert [f[1] for f in got] == [0] * (len(got) - 1) + [frames.END_STREAM]


def test_a_smaller_window_can_fall_below_nothing() -> None:
    """SETTINGS take back what was given; nothing is sent until it is above nothing again."""
    connection = made()
    call = begun(connection, bytes(65_530))
    assert connection.writer.push(call, LONGEST) is None
    connection.receive(frames.settings({4: 10}))
    other = begun(connection, bytes(100))
    assert connection.writer.push(other, LONGEST) is not None
    assert call.window < 0


def test_windows_of_the_peer_are_opened_again() -> None:
    """At half, not at each frame; also for calls that are over."""
    connection = made()
    begun(connection)
    call = begun(connection, None)
    connection.reset_call(connection.calls[1])
    sent(connection)
    piece = frames.frame(frames.DATA, 0, 1, bytes(2**20))
    for _ in range(31):
        connection.receive(piece)
    assert sent(connection) == []
    connection.receive(piece)
    assert sent(connection) == [(frames.WINDOW_UPDATE, 0, 0, struct.pack(">L", 32 * 2**20))]
    data = prefixed(bytes(40 * 2**20))
    for at in range(0, len(data), 2**20):
        connection.receive(frames.frame(frames.DATA, 0, 3, data[at : at + 2**20]))
    assert 3 in [stream for kind, _, stream, _ in sent(connection) if kind == frames.WINDOW_UPDATE]
    assert call.ready


def test_unread_messages_keep_a_stream_s_window_shut() -> None:
    """Until they are read: a server cannot fill our memory."""
    connection = made()
    call = begun(connection, None)
    sent(connection)
    frame = frames.frame(frames.DATA, 0, 1, prefixed(bytes(2**20 - 5)))
    for _ in range(WINDOW // 2**20):
        connection.receive(frame)
    assert 1 not in [stream for _, _, stream, _ in sent(connection)]
    while connection.read(call) is not None:
        pass
    assert 1 in [stream for _, _, stream, _ in sent(connection)]
    for _ in range(WINDOW // 2**20 + 1):
        connection.receive(frame)
    assert "more bytes than the window allows" in connection.lost


def test_places_in_the_line_are_given_in_order() -> None:
    """And given back by those who do not want them any more."""
    connection = made()
    connection.receive(frames.settings({3: 1}))
    begun(connection)
    first, second, third = connection.enqueue(), connection.enqueue(), connection.enqueue()
    assert connection.full()
    assert connection.receive(answer(1))[1:] == [first]
    assert connection.dequeue(second) == []
    assert connection.dequeue(first) == [third]
    connection.open("ModelInfer", [b"x"], 1, 1.0, queued=True)
    assert connection.full()


def test_going_away_lets_the_line_go_elsewhere() -> None:
    """Calls that wait for a place get the error immediately."""
    connection = made()
    connection.receive(frames.settings({3: 1}))
    call = begun(connection)
    place = connection.enqueue()
    woken = connection.receive(frames.frame(frames.GOAWAY, 0, 0, struct.pack(">LL", 0, 0)))
    assert set(woken) == {call, place}
    assert call.refused
    with pytest.raises(Draining):
        connection.open("ModelInfer", [b"x"], 1, 1.0, queued=True)


@pytest.mark.parametrize("lost", [False, True])
def test_nobody_stands_in_the_line_of_a_connection_that_ends(lost: bool) -> None:
    """A call that comes then is sent elsewhere immediately, although there was no room for it."""
    connection = made()
    connection.receive(frames.settings({3: 1}))
    begun(connection)
    connection.enqueue()
    if lost:
        connection.fail("it is over")
    else:
        connection.receive(frames.frame(frames.GOAWAY, 0, 0, struct.pack(">LL", 1, 0)))
    assert not connection.full()
    with pytest.raises(Draining):
        begun(connection)


def test_a_table_that_the_peer_shrinks() -> None:
    """The next block says so first, and its fields are read all the same."""
    connection, peer = made(), hpack.Decoder()
    begun(connection)
    peer.decode(sent(connection)[0][3])
    peer.max_allowed_table_size = 0
    connection.receive(frames.settings({1: 0}))
    sent(connection)
    for _ in range(2):
        begun(connection)
        assert dict(peer.decode(sent(connection)[0][3]))[":authority"] == "h:1"


def test_what_comes_late_for_a_call_given_up_is_dropped() -> None:
    """Its header fields are read all the same: later ones refer to them."""
    connection, peer = made(), hpack.Encoder()
    first, second = begun(connection), begun(connection)
    connection.reset_call(first)
    connection.receive(frames.frame(frames.HEADERS, 4, 1, peer.encode([("grpc-status", "7")])))
    connection.receive(frames.frame(frames.DATA, 1, 1, b"???"))
    connection.receive(frames.rst_stream(1, 0))
    connection.receive(frames.window_update(1, 5))
    connection.receive(frames.frame(frames.HEADERS, 5, 3, peer.encode([("grpc-status", "7")])))
    assert second.status == 7
    assert not connection.lost


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (frames.frame(frames.DATA, 0, 9, b"x"), "stream 9, which was not opened"),
        (frames.frame(frames.DATA, 0, 2, b"x"), "stream 2, which was not opened"),
        (frames.frame(frames.DATA, frames.PADDED, 1, b"\x05x"), "more padding than bytes"),
        (frames.frame(frames.DATA, frames.PADDED, 1, b""), "more padding than bytes"),
        (frames.frame(frames.HEADERS, 4, 1, b"\xff\xff\xff\xff"), "header fields that are none"),
        (frames.frame(frames.HEADERS, 0, 1, b"") + HELLO, "between header fields"),
        (frames.frame(frames.CONTINUATION, 4, 1, b""), "had not begun"),
        (
            frames.frame(frames.HEADERS, 0, 1, b"") + frames.frame(frames.CONTINUATION, 0, 1, bytes(40_000)) * 2,
            "header fields without end",
        ),
        (frames.frame(frames.SETTINGS, 0, 0, b"12345"), "SETTINGS that are none"),
        (frames.frame(frames.SETTINGS, 0, 1, b""), "SETTINGS that are none"),
        (frames.settings({4: 2**31}), "a window of 2147483648 bytes"),
        (frames.settings({5: 5}), "a largest frame of 5 bytes"),
        (frames.frame(frames.PING, 0, 0, b"1"), "a PING that is none"),
        (frames.frame(frames.PING, 0, 0, bytes(8)) * 1001, "does not read the answers"),
        (frames.frame(frames.GOAWAY, 0, 0, b"1"), "a GOAWAY that is none"),
        (frames.frame(frames.RST_STREAM, 0, 1, b"1"), "the wrong size"),
        (frames.frame(frames.WINDOW_UPDATE, 0, 1, b"12345"), "the wrong size"),
        (frames.window_update(0, 0), "larger by 0 bytes"),
        (frames.window_update(0, 2**31 - 1), "larger by 2147483647 bytes"),
        (frames.frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), "a push"),
        (b"\xff\xff\xff" + bytes(6), "a frame of 16777215 bytes"),
        (b"\x01\x00\x01\x01" + bytes(5), "a frame of 65537 bytes"),
    ],
)
def test_a_broken_rule_ends_the_connection(data: bytes, match: str) -> None:
    """Every call hears which, and the peer is told to go away."""
    connection = made()
    call = begun(connection)
    assert call in connection.receive(data)
    assert match in call.lost
    assert sent(connection)[-1][0] == frames.GOAWAY
    assert connection.receive(b"anything") == []


def test_a_call_s_own_window_made_too_large_ends_that_call() -> None:
    """And no other."""
    connection = made()
    call, other = begun(connection), begun(connection)
    assert connection.receive(frames.window_update(1, 2**31 - 1)) == [call]
    assert "larger by" in call.problem
    connection.receive(answer(3))
    assert other.status == 0


def test_unknown_frames_and_settings_are_ignored() -> None:
    """Unknown frames are ignored, as the protocol requires for later versions."""
    connection = made()
    call = begun(connection)
    connection.receive(frames.frame(0x42, 0xFF, 77, b"x" * 50) + frames.settings({0x77: 1, 6: 9}))
    connection.receive(frames.frame(frames.PRIORITY, 0, 1, bytes(5)) + answer(1))
    assert call.status == 0


FRAMES = st.builds(
    frames.frame,
    st.integers(0, 10),
    st.integers(0, 255),
    st.sampled_from([0, 1, 3, 5, 2**31]),
    st.one_of(st.binary(max_size=40), st.just(prefixed(b"abc")), st.just(block(grpc_status="0"))),
)


@settings(max_examples=300)
@given(
    pieces=st.lists(st.one_of(FRAMES, st.binary(max_size=30), st.just(answer(1))), max_size=12), cut=st.integers(1, 50)
)
def test_whatever_a_peer_sends_no_call_is_forgotten(pieces: list[bytes], cut: int) -> None:
    """No exception leaves the connection, and a call that has ended has a reason."""
    connection = made()
    calls = [begun(connection), begun(connection, None), begun(connection, bytes(100_000))]
    rooms = [connection.writer.push(calls[2], LONGEST)]
    data = b"".join(pieces)
    woken = []
    for at in range(0, len(data), cut):
        woken += connection.receive(data[at : at + cut])
    for call in calls:
        assert call.ended is (call.number not in connection.calls)
        assert not call.ended or call.ready
    connection.fail("over")
    assert all(call.ended and call.ready for call in calls)
    assert rooms[0] is None or rooms[0].ready
