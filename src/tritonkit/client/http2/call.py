"""One call on a connection: what it still sends, and what has come of its answer."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, Final

__all__ = ["LONGEST_MESSAGE", "PREFIX", "BadMessage", "Call", "Waiter"]

PREFIX: Final = struct.Struct(">BL")
"""What gRPC puts before each message: whether it is compressed, and its length."""

_PREFIX_SIZE: Final = PREFIX.size

LONGEST_MESSAGE: Final = 2**31 - 1
"""Protobuf's limit in bytes."""


class BadMessage(Exception):
    """An answer's bytes are no message that can be read; its text says why."""


class Waiter:
    """Something to wait for: `ready` once it has happened.

    `sleeper` is the shell's: a lock that a thread sleeps on, or a task's future.
    """

    __slots__ = ("ready", "sleeper")

    def __init__(self) -> None:
        self.ready = False
        self.sleeper: Any = None


class Call(Waiter):
    """A stream in HTTP/2's words; ready when it has ended or, if it streams, has something to read.

    Its end is told by exactly one of `status` (gRPC's), `http` (an answer that is not gRPC's), `reset`
    (HTTP/2's error code), `problem` (an answer that cannot be read) and `lost` (the connection's).
    """

    __slots__ = (
        "_missing",
        "_pieces",
        "_prefix",
        "ended",
        "http",
        "idle_s",
        "left",
        "lost",
        "message",
        "messages",
        "number",
        "owed",
        "problem",
        "quiet",
        "refused",
        "reset",
        "rest",
        "status",
        "streaming",
        "window",
        "writes_end",
    )  # fmt: skip

    def __init__(self, number: int, window: int, streaming: bool = False) -> None:
        super().__init__()
        self.number = number
        self.streaming = streaming
        self.window = window
        """Bytes the peer takes on this stream, beside the connection's window."""
        self.rest: deque[memoryview] = deque()
        """Pieces that wait for a window, `left` bytes in all."""
        self.left = 0
        self.writes_end = False
        """Whether our side ends once `rest` is sent."""
        self.messages: deque[memoryview] = deque()
        self.owed = 0
        """Bytes that came and that the peer was not yet told it may send again."""
        self.ended = False
        self.status: int | None = None
        self.message = ""
        self.http: int | None = None
        self.reset: int | None = None
        self.problem = ""
        self.lost = ""
        self.refused = False
        """Whether the peer surely did nothing for this call."""
        self.quiet = 0
        """Bytes that the connection had brought when the call began."""
        self.idle_s = 0.0
        """How long the connection had carried no call before this one."""
        self._prefix = b""
        self._pieces: list[memoryview] = []
        self._missing = 0

    @property
    def middle(self) -> bool:
        """Whether a message has come in part."""
        return bool(self._missing or self._prefix)

    def take(self, data: memoryview) -> None:
        """Put the bytes of a DATA frame together; `BadMessage` if they are no gRPC messages."""
        while data:
            if self._missing:
                data = self._gather(data)
                continue
            if self._prefix or len(data) < PREFIX.size:
                wanted = PREFIX.size - len(self._prefix)
                self._prefix += bytes(data[:wanted])
                data = data[wanted:]
                if len(self._prefix) < PREFIX.size:
                    return
                length, self._prefix = _length(self._prefix), b""
            else:
                length = _length(data)
                data = data[_PREFIX_SIZE:]
            if length <= len(data):
                self.messages.append(data[:length])
                data = data[length:]
            else:
                self._missing = length

    def _gather(self, data: memoryview) -> memoryview:
        piece = data[: self._missing]
        self._pieces.append(piece)
        self._missing -= len(piece)
        if not self._missing:
            self.messages.append(memoryview(b"".join(self._pieces)))
            self._pieces = []
        return data[len(piece) :]


def _length(prefix: bytes | memoryview) -> int:
    compressed, length = PREFIX.unpack_from(prefix)
    if compressed:
        raise BadMessage("a compressed message, though none was asked for")
    if length > LONGEST_MESSAGE:
        raise BadMessage(f"a message of {length} bytes, more than protobuf's 2 GiB")
    return int(length)
