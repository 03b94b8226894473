"""A client's side of one HTTP/2 connection (RFC 9113) that carries gRPC calls; no input or output.

The peer's bytes go into `receive`; bytes to send gather in `writer.out`. Methods return the waiters that have
become ready, for the shell (threads or tasks) to wake. The shell must not run two methods concurrently.
A peer that breaks the protocol loses this connection only, and every call gets the reason.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from tritonkit.client.wire.http2 import frames
from tritonkit.client.wire.http2.call import BadMessage, Call, Waiter
from tritonkit.client.wire.http2.frame_reader import LARGEST_FRAME, FrameReader, ProtocolError, number_in
from tritonkit.client.wire.http2.frame_writer import START_WINDOW, FrameWriter
from tritonkit.client.wire.http2.frames import LARGEST_WINDOW
from tritonkit.client.wire.http2.headers import LARGEST_LIST, RequestHeaders, ResponseHeaders
from tritonkit.client.wire.limits import AnswerLimit
from tritonkit.client.wire.transport import Body, Headers

__all__ = ["GRACE_S", "Connection", "Draining"]

GRACE_S: Final = 0.25
"""Seconds after which a cancelled call is reset, if it has not ended by then, and by which the server's deadline is
later than ours. Triton 2.51 sometimes crashes when the end of a call crosses its answer."""

WINDOW: Final = 64 * 2**20
"""Bytes the peer may send on one stream, and on all, before a WINDOW_UPDATE lets it go on."""
_GRPC: Final = (200, None)
"""HTTP statuses with which bytes are gRPC's; others come with a proxy's page."""


class Draining(Exception):
    """The connection takes no new calls."""


class Connection:
    """Frames in, frames out.

    Args:
        fields: the maker of header field blocks.
        limit: upper bounds on answer size.
    """

    def __init__(self, fields: RequestHeaders, limit: AnswerLimit | None = None) -> None:
        self.writer = FrameWriter()
        self.calls: dict[int, Call] = {}
        self.greeted = Waiter()
        """Ready when the peer's SETTINGS have come (it speaks HTTP/2), or the connection is lost."""
        self.draining = ""
        """The reason why no new call may begin; empty if one may."""
        self.lost = ""
        """The reason why the connection is lost; empty while it is not."""
        self.heads = 0
        """Blocks of header fields that came."""
        self.cancelled: dict[Call, float] = {}
        """Calls whose answers are no longer needed, each with the moment of its cancellation."""
        self._limit = limit or AnswerLimit()
        self._fields = fields
        self._answers = ResponseHeaders()
        self._reader = FrameReader(self)
        self._woken: list[Waiter] = []
        self._next = 1
        self._max_streams = LARGEST_WINDOW
        self._queue: deque[Waiter] = deque()
        self._reserved = 0
        self._unacknowledged = 0
        self._data_call: Call | None = None
        self._data_ends = 0
        ours = {
            frames.ENABLE_PUSH: 0,
            frames.INITIAL_WINDOW_SIZE: WINDOW,
            frames.MAX_FRAME_SIZE: LARGEST_FRAME,
            frames.MAX_HEADER_LIST_SIZE: LARGEST_LIST,
        }
        self.writer.out.append(frames.PREFACE + frames.settings(ours) + frames.window_update(0, WINDOW - START_WINDOW))

    # -- calls

    def full(self) -> bool:
        """Whether a new call must `enqueue` first, because of the peer's limit on concurrent streams."""
        if self.draining:
            return False  # `open` reports it immediately: no place would ever become free
        return bool(self._queue) or len(self.calls) + self._reserved >= self._max_streams

    def busy(self) -> bool:
        """Whether an answer is waited for."""
        return len(self.calls) > len(self.cancelled)

    def enqueue(self) -> Waiter:
        """A place in the queue of new calls; once ready it must be used up by `open` or `dequeue`."""
        place = Waiter()
        self._queue.append(place)
        return place

    def dequeue(self, place: Waiter) -> list[Waiter]:
        """Give a place in the queue back."""
        if place.ready:
            self._reserved -= 1
        else:
            self._queue.remove(place)
        self._admit()
        return self._now_ready()

    def open(
        self,
        method: str,
        body: Body | None,
        size: int,
        timeout_s: float | None,
        headers: Headers = (),
        queued: bool = False,
    ) -> Call:
        """Begin a call, or raise `Draining`; `writer.push` sends what the windows have held back.

        Args:
            method: a method of Triton's service.
            body: a unary call's message, of `size` bytes, or None for a stream.
            size: see `body`.
            timeout_s: seconds for the call, None for no limit; the server gets `GRACE_S` more.
            headers: metadata of this call alone.
            queued: whether the call has a place from `enqueue`.
        """
        if queued:
            self._reserved -= 1
        if self.draining:
            raise Draining
        number = self._next
        server_timeout_s = None if timeout_s is None else timeout_s + GRACE_S
        block = self._fields.block(method, server_timeout_s, headers)
        call = Call(number, self.writer.stream_window, body is None, self._limit.of(method))
        self.calls[number] = call
        self._next = number + 2
        if self._next > LARGEST_WINDOW:
            self.draining = "it has no number left for a new call"
        self.writer.begin(call, block, body, size)
        return call

    def read(self, call: Call) -> memoryview | None:
        """The oldest message not yet read, if there is one."""
        message = call.read()
        call.ready = call.unread > 0 or call.ended or call.problem != ""
        if not call.ended:
            self._reopen_window(call)
        return message

    def cancel(self, call: Call, now: float) -> list[Waiter]:
        """The answer is not wanted: `reset_cancelled` resets the call unless it ends by itself before."""
        if call.ended or call in self.cancelled:
            return []
        if call.unsent_bytes:
            self.reset_call(call)  # the server has not begun
        else:
            self.writer.finish(call)
            self.cancelled[call] = now
            call.discard()
            self._wake(call)
        return self._now_ready()

    def reset_cancelled(self, now: float) -> list[Waiter]:
        """Reset the calls cancelled `GRACE_S` ago."""
        for call, since in list(self.cancelled.items()):
            if now - since < GRACE_S:
                break
            self.reset_call(call)
        return self._now_ready()

    def reset_call(self, call: Call, code: int = frames.CANCEL) -> None:
        """Reset a call that has not ended; later frames for it are dropped."""
        if not call.ended:
            self.writer.out.append(frames.rst_stream(call.number, code))
            self._end(call)

    def drain(self, why: str) -> list[Waiter]:
        """Let no new call begin; those in the queue go to another connection."""
        self.draining = self.draining or why
        self._admit()
        return self._now_ready()

    def movable(self) -> list[Call]:
        """Calls under way that another server may take over."""
        return [
            call
            for call in self.calls.values()
            if call.elsewhere is not None and not call.lost and call not in self.cancelled
        ]

    def forsake(self, call: Call, why: str) -> list[Waiter]:
        """End a call for its waiters, because another server does it; they end it here with `cancel`."""
        if not call.ended and call not in self.cancelled:
            call.lost = why
            if call.unsent_bytes or self.writer.blocked:
                self.reset_call(call)  # its sender waits for room, not for an answer
            else:
                self._wake(call)
        return self._now_ready()

    def ping(self) -> None:
        """Send a PING."""
        self.writer.out.append(frames.frame(frames.PING, 0, 0, b"tritnkit"))

    def fail(self, why: str, code: int | None = None) -> list[Waiter]:
        """End every call with the reason why the connection is lost; `code` is for the peer's GOAWAY, if any."""
        if self.lost:
            return []
        self.lost = self.draining = why
        if code is not None:
            self.writer.out.append(frames.goaway(code))
        for call in list(self.calls.values()):
            call.lost = why
            self._end(call)
        self._admit()
        self._wake(self.greeted)
        return self._now_ready()

    # -- what comes

    def receive(self, data: bytes) -> list[Waiter]:
        """Process bytes of the peer; return the waiters that have become ready."""
        if self.lost:
            return []
        try:
            self._reader.read(data)
        except ProtocolError as error:
            return self.fail(f"it broke HTTP/2's rules: {error}", error.code)
        return self._now_ready()

    def data_frame(self, number: int, size: int, ends: int) -> None:
        """Begin a DATA frame of `size` bytes, padding included; `ends` is not 0 in the stream's last frame."""
        self._unacknowledged += size
        if self._unacknowledged >= WINDOW // 2:
            self.writer.out.append(frames.window_update(0, self._unacknowledged))
            self._unacknowledged = 0
        call = self._data_call = self._call(number)
        self._data_ends = ends
        if call is not None:
            call.unacknowledged += size
            if call.unacknowledged > WINDOW:
                raise ProtocolError("more bytes than the window allows", frames.FLOW_CONTROL_ERROR)

    def data(self, payload: memoryview, last: bool) -> None:
        """Take bytes of that frame; `last` is True with its last ones."""
        call = self._data_call
        if call is None or call.ended:
            return
        if not call.problem and call not in self.cancelled and call.http in _GRPC:
            try:
                call.receive(payload)
            except BadMessage as error:
                # The shell cancels it later: the server may be Triton, which should not see a reset immediately.
                call.problem = str(error)
                if not call.streaming:
                    call.discard()
                self._wake(call)
        if not last:
            return
        if self._data_ends:
            if call.http in _GRPC:
                call.problem = call.problem or "it ended without a status"
            self._close(call)
            return
        self._reopen_window(call)
        if call.unread:
            self._wake(call)

    def fields(self, number: int, block: bytes, ends: int) -> None:
        """A whole block of header fields."""
        # Read also for a call that is over: the peer's table lives in these blocks.
        head = self._answers.read(block)
        self.heads += 1
        call = self._call(number)
        if call is None:
            return
        if head.http is not None and head.http >= 200:
            call.http = head.http
        if head.status is not None:
            call.status, call.message = head.status, head.message
        if ends:
            if call.partial:
                call.problem = call.problem or "its message ended early"
            self._close(call)

    def control(self, kind: int, flags: int, number: int, payload: memoryview) -> None:
        """Any other frame; unknown kinds too."""
        if kind == frames.WINDOW_UPDATE:
            self._window_update(number, number_in(payload) & LARGEST_WINDOW)
        elif kind == frames.PING:
            if number or len(payload) != 8:
                raise ProtocolError("a PING that is none", frames.FRAME_SIZE_ERROR)
            if not flags & frames.ACK:
                self.writer.acknowledge(frames.frame(frames.PING, frames.ACK, 0, bytes(payload)))
        elif kind == frames.RST_STREAM:
            code = number_in(payload)
            call = self._call(number)
            if call is not None:
                call.reset, call.refused = code, code == frames.REFUSED_STREAM
                self._end(call)
        elif kind == frames.SETTINGS:
            self._settings(flags, number, payload)
        elif kind == frames.GOAWAY:
            self._goaway(number, payload)
        elif kind == frames.PUSH_PROMISE:
            raise ProtocolError("a push, which was switched off")

    def _settings(self, flags: int, number: int, payload: memoryview) -> None:
        if number or len(payload) % 6 or (flags & frames.ACK and payload):
            raise ProtocolError("SETTINGS that are none", frames.FRAME_SIZE_ERROR)
        if flags & frames.ACK:
            return
        for name, value in struct.iter_unpack(">HL", payload):
            if name == frames.HEADER_TABLE_SIZE:
                self._fields.resize(value)
            elif name == frames.MAX_CONCURRENT_STREAMS:
                self._max_streams = value
                self._admit()
            elif name == frames.INITIAL_WINDOW_SIZE:
                self._woken += self.writer.resize_windows(value, self.calls.values())
            elif name == frames.MAX_FRAME_SIZE:
                self.writer.resize_frames(value)
        self._wake(self.greeted)
        self.writer.acknowledge(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))

    def _goaway(self, number: int, payload: memoryview) -> None:
        if number or len(payload) < 8:
            raise ProtocolError("a GOAWAY that is none", frames.FRAME_SIZE_ERROR)
        last, why = frames.going_away(payload)
        self.draining = f"the server is closing the connection ({why})"
        for call in list(self.calls.values()):
            if call.number > last:
                call.lost, call.refused = self.draining, True
                self._end(call)
        self._admit()

    def _window_update(self, number: int, more: int) -> None:
        if not number:
            self._woken += self.writer.window_update(more)
            return
        call = self._call(number)
        if call is None:
            return
        call.window += more
        if not more or call.window > LARGEST_WINDOW:
            call.problem = f"it made the call's window larger by {more} bytes"
            self.reset_call(call, frames.FLOW_CONTROL_ERROR)
        else:
            self._woken += self.writer.unblock()

    # -- common to both

    def _call(self, number: int) -> Call | None:
        """The call of a stream; None if it is over."""
        call = self.calls.get(number)
        if call is None and (not number & 1 or number >= self._next):
            raise ProtocolError(f"a frame for stream {number}, which was not opened")
        return call

    def _reopen_window(self, call: Call) -> None:
        """Let the peer send more on this stream, unless its messages pile up unread."""
        if call.unacknowledged >= WINDOW // 2 and not call.unread:
            self.writer.out.append(frames.window_update(call.number, call.unacknowledged))
            call.unacknowledged = 0

    def _close(self, call: Call) -> None:
        """End a call whose peer has ended its side; reset it if our side has not ended."""
        if call.unsent_bytes or not call.ends:
            self.writer.out.append(frames.rst_stream(call.number, frames.CANCEL))
        self._end(call)

    def _end(self, call: Call) -> None:
        """The call is over; wake those who wait for it or for its place."""
        del self.calls[call.number]
        call.ended = True
        self.cancelled.pop(call, None)
        self._wake(call)
        room = self.writer.discard(call)
        if room is not None:
            self._woken.append(room)
        if self._queue:
            self._admit()

    def _admit(self) -> None:
        """Let in those at the head of the queue for whom there is room; all, if no call may begin."""
        while self._queue and (self.draining or len(self.calls) + self._reserved < self._max_streams):
            self._reserved += 1
            self._wake(self._queue.popleft())

    def _wake(self, waiter: Waiter) -> None:
        if not waiter.ready:
            waiter.ready = True
            self._woken.append(waiter)

    def _now_ready(self) -> list[Waiter]:
        woken, self._woken = self._woken, []
        return woken
