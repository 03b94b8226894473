"""One call on a connection: its unsent bytes, and the part of its answer that has come.

One buffer holds all that a peer sends in small pieces: an object for each piece, or for each small unread
message, would take many times the bytes that came.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from typing import Any, Final

from tritonkit.client.wire.channel import ChannelConfig
from tritonkit.client.wire.status import checked_size
from tritonkit.client.wire.transport import LONGEST_MESSAGE, Body, Elsewhere, Headers

__all__ = ["COMPRESSED", "PREFIX", "BadMessage", "Call", "CallRequest", "Waiter"]

PREFIX: Final = struct.Struct(">BL")
"""gRPC's prefix of each message: whether it is compressed, and its length."""

_PREFIX_SIZE: Final = PREFIX.size

COMPRESSED: Final = "a compressed message, although none was requested"


class BadMessage(Exception):
    """An answer's bytes are not a readable message; its text says why."""


class CallRequest:
    """A call to make: its message and its terms.

    Args:
        config: the target.
        method: the method's name.
        body: the message; None for a stream, whose messages follow.
        timeout_s: seconds from now for the call or, for a stream, for its beginning.
        headers: metadata of this call.
        elsewhere: see `Transport.send`.

    Raises:
        InvalidInput: the message is too long.
        UsageError: the headers would send a secret in plain text.
    """

    __slots__ = ("body", "deadline", "elsewhere", "headers", "method", "size", "timeout_s")

    def __init__(
        self,
        config: ChannelConfig,
        method: str,
        body: Body | None,
        timeout_s: float,
        headers: Headers = (),
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.method, self.body, self.headers, self.elsewhere = method, body, headers, elsewhere
        self.timeout_s, self.deadline = timeout_s, time.monotonic() + timeout_s
        if headers:
            config.check(headers)
        self.size = 0 if body is None else checked_size(config.name, method, body)


class Waiter:
    """Something to wait for: `ready` once it has happened.

    `sleeper` is the shell's: a lock that a thread sleeps on, or a task's future. `cancellable` says that
    another thread may end the wait, so that the one that reads must listen for that too.
    """

    __slots__ = ("cancellable", "ready", "sleeper")

    def __init__(self) -> None:
        self.ready = self.cancellable = False
        self.sleeper: Any = None


class Call(Waiter):
    """A call, which is a stream in HTTP/2; ready when it has ended or, if it streams, has something to read.

    `answer` is what a unary call was answered; the messages of a stream are counted by `unread` and
    given by `read`, each of `max_bytes` at most. An answer that is refused (`problem`) makes the call
    ready before it has ended.

    Its end is said by exactly one of `status` (gRPC's), `http` (an answer that is not gRPC's), `reset`
    (HTTP/2's error code), `problem` (an answer that cannot be read) and `lost` (the connection's).
    """

    __slots__ = (
        "_buffer",
        "_complete",
        "_scan_at",
        "answer",
        "elsewhere",
        "ended",
        "ends",
        "http",
        "lost",
        "max_bytes",
        "message",
        "number",
        "oversize",
        "problem",
        "refused",
        "reset",
        "status",
        "streaming",
        "unacknowledged",
        "unread",
        "unsent_bytes",
        "unsent_pieces",
        "window",
    )

    def __init__(self, number: int, window: int, streaming: bool = False, max_bytes: int = LONGEST_MESSAGE) -> None:
        super().__init__()
        self.number = number
        self.streaming = streaming
        self.max_bytes = max_bytes
        self.window = window
        """Bytes that the peer accepts on this stream, in addition to the connection's window."""
        self.unsent_pieces: deque[memoryview] = deque()
        """Pieces that wait for a window, `unsent_bytes` in all."""
        self.unsent_bytes = 0
        self.ends = False
        """Whether our side ends after the unsent pieces."""
        self.answer: memoryview | None = None
        self.unread = 0
        self.oversize = 0
        """Bytes of the message that was refused for its size."""
        self.unacknowledged = 0
        """Bytes that came and were not yet acknowledged with a WINDOW_UPDATE."""
        self.ended = False
        self.status: int | None = None
        self.message = ""
        self.http: int | None = None
        self.reset: int | None = None
        self.problem = ""
        self.lost = ""
        self.elsewhere: Elsewhere | None = None
        """Called when the peer is silent; None: the call stays."""
        self.refused = False
        """Whether the peer certainly did nothing for this call."""
        self._buffer = bytearray()
        """Bytes that have come and were not read, with the messages' prefixes."""
        self._complete = 0
        """Bytes of `_buffer` that form whole messages."""
        self._scan_at = 0
        """Bytes that `_buffer` must have before another scan can find anything new."""

    @property
    def partial(self) -> bool:
        """Whether a message has come in part."""
        return len(self._buffer) > self._complete

    def receive(self, data: memoryview) -> None:
        """Take in the bytes of a DATA frame; `BadMessage` if this call may not get them."""
        if not data:
            return
        if self.answer is not None:
            raise BadMessage("more than one message in an answer of one")
        if not (self._buffer or self.streaming) and len(data) >= _PREFIX_SIZE:
            # The usual case: a whole answer, which is not copied.
            end = self._end_of(data, 0)
            if end == len(data):
                self.answer = data[_PREFIX_SIZE:]
                return
        self._buffer += data
        if len(self._buffer) >= self._scan_at:
            self._scan()

    def read(self) -> memoryview | None:
        """The oldest message of a stream that is not yet read; None if there is none."""
        if not self.unread:
            return None
        self.unread -= 1
        buffer = self._buffer
        end = _PREFIX_SIZE + PREFIX.unpack_from(buffer)[1]
        self._complete -= end
        self._scan_at -= end
        if end * 2 < len(buffer):
            message = memoryview(bytes(memoryview(buffer)[_PREFIX_SIZE:end]))
            del buffer[:end]
            return message
        # The larger part of the buffer is not copied.
        self._buffer = buffer[end:]
        return memoryview(buffer)[_PREFIX_SIZE:end]

    def discard(self) -> None:
        """Drop the buffered bytes."""
        self.unread = self._complete = self._scan_at = 0
        self._buffer = bytearray()

    def _scan(self) -> None:
        """Find whole messages in `_buffer`."""
        buffer, at = self._buffer, self._complete
        size = len(buffer)
        while size - at >= _PREFIX_SIZE:
            end = self._end_of(buffer, at)
            if end > size:
                self._scan_at = end
                break
            if not self.streaming:
                self.answer, self._buffer = memoryview(buffer)[_PREFIX_SIZE:end], bytearray()
                if end < size:
                    raise BadMessage("more than one message in an answer of one")
                return
            at = self._complete = end
            self.unread += 1
        else:
            self._scan_at = at + _PREFIX_SIZE

    def _end_of(self, data: memoryview | bytearray, at: int) -> int:
        """The end of the message whose prefix is at `at`; `BadMessage` if it is refused."""
        compressed, length = PREFIX.unpack_from(data, at)
        if compressed:
            raise BadMessage(COMPRESSED)
        if length > self.max_bytes:
            self.oversize = length
            raise BadMessage(f"a message of {length} bytes")
        end: int = at + _PREFIX_SIZE + length
        return end
