"""The sending side of a connection: requests in DATA frames, as far as the peer's windows are open."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import Final

from tritonkit.client.wire.http2 import frames
from tritonkit.client.wire.http2.call import PREFIX, Call, Waiter
from tritonkit.client.wire.http2.frame_reader import ProtocolError
from tritonkit.client.wire.http2.frames import HEAD, LARGEST_WINDOW
from tritonkit.client.wire.transport import Body

__all__ = ["START_WINDOW", "FrameWriter"]

START_WINDOW: Final = 65_535
"""Initial window of the connection and of every stream, in bytes."""
_START_FRAME: Final = 16_384
_MOST_ACKS: Final = 1000
"""Answers that may wait for a peer."""
_JOINED: Final = 64 * 2**10
"""Bodies up to this many bytes are copied into one piece, which costs less than passing many to a socket."""
_SHORT_HEAD: Final = struct.Struct(">BHBBLBL")
"""The head of a DATA frame and gRPC's prefix, 14 bytes."""


class FrameWriter:
    """Frames that wait in `out`, and the windows that let more of them in."""

    def __init__(self) -> None:
        self.out: list[bytes | memoryview] = []
        self.blocked = False
        """Whether the peer has not read the bytes sent before; set by the shell."""
        self.stream_window = START_WINDOW
        """Window of a new stream."""
        self.largest = _START_FRAME
        """Largest frame that the peer accepts, in bytes."""
        self._window = START_WINDOW
        self._unread_acks = 0
        self._blocked_calls: dict[Call, Waiter] = {}

    def begin(self, call: Call, block: bytes, body: Body | None, size: int) -> None:
        """Send a call's header fields and, for a unary call, as much of its message as the windows allow."""
        start = frames.header_frames(call.number, block, self.largest)
        total = size + PREFIX.size
        if body is None:
            self.out.append(start)
        elif total <= call.window and total <= self._window and total <= self.largest:
            call.window -= total
            self._window -= total
            call.ends = True
            start += _SHORT_HEAD.pack(total >> 16, total & 0xFFFF, frames.DATA, frames.END_STREAM, call.number, 0, size)
            if size <= _JOINED:
                self.out.append(b"".join((start, *body)))
            else:
                self.out += (start, *body)
        else:
            self.out.append(start)
            self.write(call, body, size)
            self.finish(call)

    def write(self, call: Call, body: Body, size: int) -> None:
        """Add a message to what the call sends; `push` sends it."""
        if call.ended:
            return
        call.unsent_pieces.append(memoryview(PREFIX.pack(0, size)))
        # A view without bytes cannot be cast.
        call.unsent_pieces.extend(memoryview(p).cast("B") for p in body if memoryview(p).nbytes)
        call.unsent_bytes += size + PREFIX.size

    def finish(self, call: Call) -> None:
        """No message will follow those written."""
        if call.ended or call.ends:
            return
        call.ends = True
        if not call.unsent_bytes:
            self._head(call, 0, frames.END_STREAM)

    def push(self, call: Call, most: int) -> Waiter | None:
        """Send up to `most` bytes of what the call has left, as far as the windows are open.

        Returns:
            What to wait for before pushing again if a window is shut; None otherwise.
        """
        allowed = min(most, call.window, self._window, call.unsent_bytes)
        while allowed > 0:
            size = min(allowed, self.largest)
            allowed -= size
            call.unsent_bytes -= size
            call.window -= size
            self._window -= size
            self._head(call, size, frames.END_STREAM if call.ends and not call.unsent_bytes else 0)
            self._cut(call.unsent_pieces, size)
        if call.unsent_bytes and (call.window <= 0 or self._window <= 0):
            return self._blocked_calls.setdefault(call, Waiter())
        return None

    def discard(self, call: Call) -> Waiter | None:
        """Forget a call that has ended; return the waiter for its windows, if there is one."""
        call.unsent_pieces.clear()
        call.unsent_bytes = 0
        room = self._blocked_calls.pop(call, None)
        if room is not None:
            room.ready = True
        return room

    def resize_windows(self, size: int, calls: Iterable[Call]) -> list[Waiter]:
        """Apply a new window from SETTINGS to every stream, also those under way; return the waiters that may go on."""
        if size > LARGEST_WINDOW:
            raise ProtocolError(f"a window of {size} bytes", frames.FLOW_CONTROL_ERROR)
        more, self.stream_window = size - self.stream_window, size
        for call in calls:
            call.window += more
        return self.unblock()

    def resize_frames(self, size: int) -> None:
        """SETTINGS allow larger or smaller frames."""
        if not _START_FRAME <= size < 2**24:
            raise ProtocolError(f"a largest frame of {size} bytes")
        self.largest = size

    def acknowledge(self, answer: bytes) -> None:
        """Send this answer to a PING or SETTINGS; `ProtocolError` if the peer reads none of them."""
        self._unread_acks = self._unread_acks + 1 if self.out or self.blocked else 1
        if self._unread_acks > _MOST_ACKS:
            raise ProtocolError("it asks and does not read the answers", frames.ENHANCE_YOUR_CALM)
        self.out.append(answer)

    def window_update(self, more: int) -> list[Waiter]:
        """Enlarge the connection's window; return the waiters that may go on."""
        self._window += more
        if not more or self._window > LARGEST_WINDOW:
            raise ProtocolError(f"a window larger by {more} bytes", frames.FLOW_CONTROL_ERROR)
        return self.unblock()

    def unblock(self) -> list[Waiter]:
        """The waiters of calls whose windows are open, those first that have waited longest."""
        if self._window <= 0 or not self._blocked_calls:
            return []
        fed = [self._blocked_calls.pop(call) for call in list(self._blocked_calls) if call.window > 0]
        for room in fed:
            room.ready = True
        return fed

    def _head(self, call: Call, size: int, flags: int) -> None:
        self.out.append(HEAD.pack(size >> 16, size & 0xFFFF, frames.DATA, flags, call.number))

    def _cut(self, rest: deque[memoryview], size: int) -> None:
        while size:
            piece = rest[0]
            if len(piece) <= size:
                rest.popleft()
            else:
                rest[0] = piece[size:]
                piece = piece[:size]
            self.out.append(piece)
            size -= len(piece)
