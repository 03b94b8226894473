"""One connection shared by the tasks of an event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from typing import Any, Final, cast

from tritonkit.client.wire.http2.call import Call, CallRequest, Waiter
from tritonkit.client.wire.http2.connect import reason
from tritonkit.client.wire.http2.connection import GRACE_S, Connection
from tritonkit.client.wire.http2.shared_connection import ENDED, PUSHED, SILENT, SLICE_S, SharedConnection

__all__ = ["TaskConnection"]

_WATCH_S: Final = 5.0
"""Seconds between two checks of keepalive while calls are under way."""
_LINGER_S: Final = 0.5
_LATE_S: Final = 0.001


class TaskConnection(SharedConnection, asyncio.Protocol):
    """A connection, for `loop.create_connection`; deadlines are `time.monotonic()` moments.

    They have one timer for all calls, set for the earliest: a timer per call would cost as much as
    the call's frames.
    """

    def __init__(self, core: Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(core)
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()
        self._resumed: list[Waiter] = []
        self._flushing = False
        self._waiting: dict[Waiter, float] = {}
        """Waiters, each with its deadline."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._heard = False

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self._transport = cast(asyncio.Transport, transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Wake the waiters whose answer came."""
        core = self.core
        self._heard = True
        self._wake(core.receive(data))
        if core.writer.out:
            self.flush()
        if core.lost:
            self.close()

    def eof_received(self) -> None:
        """Note that the peer sends nothing more."""
        self._wake(self.core.fail(ENDED))

    def connection_lost(self, error: Exception | None) -> None:
        """End all calls."""
        lost = ENDED if error is None else f"the connection was lost: {reason(error)}"
        self._wake(self.core.fail(lost))
        self._closed.set()
        self._stop_timer()
        self.resume_writing()

    def pause_writing(self) -> None:
        """Pause sending, because the loop's buffer is full."""
        self.core.writer.blocked = True

    def resume_writing(self) -> None:
        """Resume sending: the loop's buffer has room."""
        self.core.writer.blocked = False
        self._resume()

    def _resume(self) -> None:
        """Wake those who wait for the loop to take more, to look again."""
        resumed, self._resumed = self._resumed, []
        for waiter in resumed:
            waiter.ready = True
        self._wake(resumed)

    # -- calls

    async def usable(self) -> bool:
        """Whether a new call may begin here; a connection that was idle is checked first."""
        if not self.core.busy() and self._is_stale():
            # The loop hears of an end in its next turn and tells us in the one after.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return not self.core.draining

    async def start(self, request: CallRequest) -> Call | None:
        """Begin a call as `Connection.open` does, once there is room for it; None if its time is up before."""
        core = self.core
        queued = core.full()
        if queued and not await self._wait_in_queue(request.deadline):
            return None
        call = self._open(request, queued)
        if len(core.calls) == 1:
            self.flush()
        elif not self._flushing:  # all tasks of this turn of the loop send with one word to the system
            self._flushing = True
            self._loop.call_soon(self.flush)
        return call

    async def push(self, call: Call, deadline: float) -> bool:
        """Send what `call` has left as its windows open; False if time is up before that."""
        writer = self.core.writer
        while call.unsent_bytes and not call.ended:
            room = writer.push(call, PUSHED)
            self.flush()
            if room is not None and not await self.wait(room, deadline):
                return False
            if writer.blocked:
                resumed = Waiter()
                self._resumed.append(resumed)
                if not await self.wait(resumed, deadline):
                    return False
        return True

    def cancel(self, call: Call) -> None:
        """Give the call up, unless it has ended: see `Connection.cancel`."""
        self._used = time.monotonic()
        self._wake(self.core.cancel(call, self._used))
        if self.core.cancelled:
            self._set_timer(self._used + GRACE_S)
        self.flush()
        self.retire()

    async def complete(self, call: Call, deadline: float) -> bool:
        """Send the rest of a unary call and wait for its end; it is cancelled if that has not come in time."""
        try:
            if call.unsent_bytes and not await self.push(call, deadline):
                return False
            return await self.wait(call, deadline)
        finally:
            self.finished(call)

    def close(self, why: str = "") -> None:
        """Close the connection; calls under way end, with the reason."""
        self._wake(self.core.fail(why, 0))
        self.resume_writing()  # also if the peer reads no more: those who wait for that have no timer now
        self.flush()
        self._stop_timer()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop what is still unsent too: for a peer that may be gone."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until a closed connection is gone; what the peer does not read is dropped."""
        try:
            async with asyncio.timeout(_LINGER_S):
                await self._closed.wait()
        except TimeoutError:
            self.abort()

    def flush(self) -> None:
        """Hand over what there is to send."""
        self._flushing = False
        out, self.core.writer.out = self.core.writer.out, []
        transport = self._transport
        if transport is None or transport.is_closing() or not out:
            return
        if len(out) == 1:
            transport.write(out[0])
        else:
            transport.writelines(out)

    # -- waiting

    async def wait(self, waiter: Waiter, deadline: float) -> bool:
        """Sleep until `waiter` is ready; False when the deadline passes first."""
        if waiter.ready:
            return True
        waiter.sleeper = future = self._loop.create_future()
        self._waiting[waiter] = deadline
        look_at = min(deadline, self._used + SLICE_S) if self._quick else deadline
        if look_at < self._timer_at:
            self._set_timer(look_at)
        try:
            await future
        finally:
            waiter.sleeper = None
            del self._waiting[waiter]
        return waiter.ready

    def _wake(self, woken: Iterable[Waiter]) -> None:
        for waiter in woken:
            future = waiter.sleeper
            if future is not None and not future.done():
                future.set_result(None)

    async def _wait_in_queue(self, deadline: float) -> bool:
        place = self.core.enqueue()
        let_in = False
        try:
            let_in = await self.wait(place, deadline)
        finally:
            if not let_in:
                self._wake(self.core.dequeue(place))
        return let_in

    # -- time

    def _set_timer(self, moment: float) -> None:
        moment = min(moment, time.monotonic() + (SLICE_S if self._quick else _WATCH_S))
        if moment < self._timer_at:
            self._stop_timer()
            self._timer_at = moment
            left = max(moment - time.monotonic(), 0.0)
            self._timer = self._loop.call_later(left + _LATE_S, self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, math.inf

    def _tick(self) -> None:
        """Wake the waiters whose time is up, reset cancelled calls, and look after keepalive."""
        self._timer, self._timer_at = None, math.inf
        core, now = self.core, time.monotonic()
        next_at = math.inf
        for waiter, deadline in self._waiting.items():
            if deadline <= now:
                self._wake((waiter,))
            elif deadline < next_at:
                next_at = deadline
        if core.cancelled:
            self._wake(core.reset_cancelled(now))
        if core.calls:
            self._check_keepalive(now)
        self.flush()
        self.retire()
        if core.cancelled:
            next_at = min(next_at, next(iter(core.cancelled.values())) + GRACE_S)
        if (self._waiting or core.cancelled) and not core.lost:
            self._set_timer(next_at)

    def _check_keepalive(self, now: float) -> None:
        if self._heard:  # since the last look, at most 5 s ago: exact enough, and costs no clock
            self._heard = False
            self._keepalive.heard(now)
        if self._keepalive.timed_out(now):
            self._wake(self.core.fail(SILENT))
            self.abort()
            return
        woken, calls = self._look_after(now, now)  # the loop reads before it looks at its clock
        self._wake(woken)
        for call in calls:
            if call.elsewhere is not None and call.elsewhere(True):
                self._wake(self.core.forsake(call, SILENT))
                self._resume()

    def _socket_of(self) -> Any:
        return None if self._transport is None else self._transport.get_extra_info("socket")
