"""Connections whose clients do not take their answers."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.native.guarded import DATA, HEADERS, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, Receiver, frame
from tests.waiting import eventually

CALL = frame(HEADERS, 4, 1)
ANSWERED = frame(HEADERS, 4, 1, b"\x88")
ENDED = frame(HEADERS, 4 | 1, 1, b"\x88")
DEFAULT_WINDOW = 65535


def initial(window: int, more: bytes = b"") -> bytes:
    """SETTINGS with the window of each call, after others that say nothing about it."""
    return frame(SETTINGS, 0, 0, more + b"\0\4" + window.to_bytes(4, "big"))


def update(stream: int, more: int) -> bytes:
    """A WINDOW_UPDATE."""
    return frame(WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))


def data(stream: int, *lengths: int) -> bytes:
    """DATA frames of these lengths."""
    return b"".join(frame(DATA, 0, stream, bytes(length)) for length in lengths)


UNREAD = {
    "a call without room": (initial(0) + CALL, ANSWERED),
    "none answered yet": (initial(0) + CALL, frame(SETTINGS, 0, 0)),
    "an answer that fills its window": (initial(30) + CALL, ANSWERED + data(1, 10, 0, 20)),
    "room that was given and used": (initial(0) + CALL + update(1, 5) + update(1, 6), ANSWERED + data(1, 11)),
    "room that was taken back": (initial(30, b"\0\3\0\0\0\1\4\0\0\0\0\7") + CALL + initial(10), ANSWERED + data(1, 10)),
    "the connection's window is full": (
        initial(1 << 20) + CALL + frame(HEADERS, 4, 3),
        ANSWERED + data(1, *[DEFAULT_WINDOW // 5] * 4) + frame(HEADERS, 4, 3) + data(3, DEFAULT_WINDOW // 5),
    ),
}
READ = {
    "no call": (initial(0), frame(SETTINGS, 0, 0)),
    "a call at work": (initial(1) + CALL, frame(SETTINGS, 0, 0)),
    "room is left": (initial(31) + CALL, ANSWERED + data(1, 10, 20)),
    "room was given": (initial(0) + CALL + update(1, 31), ANSWERED + data(1, 30)),
    "room of calls that are open": (initial(0) + CALL + initial(31), ANSWERED + data(1, 30)),
    "an answer that has ended": (initial(30) + CALL, ANSWERED + data(1, 30) + ENDED),
    "a call that was given up": (initial(0) + CALL + frame(RST_STREAM, 0, 1, bytes(4)), b"\0"),
}


@contextlib.contextmanager
def connected(guard: Path, path: Path, sent: bytes, answer: bytes) -> Iterator[socket.socket]:
    """A connection that has sent this, to a server that answers this and then waits for a byte."""
    settings = {
        "TRITONKIT_GUARD_GRPC_SOCKET": str(path),
        "TRITONKIT_GUARD_MAX_MESSAGE_BYTES": "1000",
        "TRITONKIT_GUARD_UNREAD_S": "1",
    }
    receiver = Receiver(guard, str(path), settings)
    try:
        with receiver.begin([len(PREFACE + sent), [answer.hex()], 1]) as peer:
            peer.sendall(PREFACE + sent)
            yield peer
        receiver.end()
    finally:
        receiver.close()


def is_ended(peer: socket.socket) -> bool:
    """Whether the other side has ended it; nothing is read for that."""
    poll = select.poll()
    poll.register(peer, select.POLLRDHUP)
    return bool(poll.poll(0))


def test_what_is_not_read_for_long_is_ended(guard: Path, tmp_path: Path) -> None:
    """However a client withholds room for an answer; those whose answers do not wait go on."""
    with contextlib.ExitStack() as stack:
        peers = {
            name: stack.enter_context(connected(guard, tmp_path / str(number), *case))
            for number, (name, case) in enumerate((READ | UNREAD).items())
        }
        for name in UNREAD:
            eventually(lambda name=name: is_ended(peers[name]), name)
        assert [name for name in READ if is_ended(peers[name])] == []
