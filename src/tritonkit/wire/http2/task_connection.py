"""One connection shared by the tasks of an event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from typing import Final, cast

from tritonkit.wire.http2.call import Call, Waiter
from tritonkit.wire.http2.connect import reason
from tritonkit.wire.http2.connection import GRACE_S, Connection
from tritonkit.wire.http2.shared_connection import FRESH_S, LONG_IDLE_S, PUSHED, SharedConnection
from tritonkit.wire.transport import Body, Headers

__all__ = ["TaskConnection"]

_WATCH_S: Final = 5.0
"""How often keepalive is looked after while calls are under way."""
_LINGER_S: Final = 0.5
_LATE_S: Final = 0.001


class TaskConnection(SharedConnection, asyncio.Protocol):
    """A connection; made by `loop.create_connection`.

    Deadlines have one timer for all calls, set for the earliest: a timer per call would cost as much as
    the call's frames.

    Args:
        core: reads and writes the frames.
        loop: whose tasks use it.
    """

    def __init__(self, core: Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(core)
        self.settings_received: asyncio.Future[None] = loop.create_future()
        """Done when the peer's SETTINGS have come, or the connection is lost."""
        self._resetting: asyncio.TimerHandle | None = None
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._closed_event = asyncio.Event()
        self._paused = False
        self._resumed: list[Waiter] = []
        self._flushing = False
        self._waiting: dict[Waiter, float] = {}
        """Those that wait, each with its deadline."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._heard = False

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self._transport = cast(asyncio.Transport, transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Wake those whose answer came."""
        core = self.core
        self._heard = True
        woken = core.receive(data)
        for waiter in woken:
            future = waiter.sleeper
            if future is not None and not future.done():
                future.set_result(None)
        if core.writer.out:
            self.flush()
        if core.lost:
            self.close()
        if not self.settings_received.done() and (core.settings_received or core.lost):
            self.settings_received.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """End all calls."""
        why = "the server closed the connection"
        if error is not None:
            why = f"the connection was lost: {reason(error)}"
        self._wake(self.core.fail(why))
        self._closed_event.set()
        if self._resetting is not None:
            self._resetting.cancel()
        self._stop_timer()
        self.resume_writing()
        if not self.settings_received.done():
            self.settings_received.set_result(None)

    def eof_received(self) -> None:
        """The peer will say no more."""
        self._wake(self.core.fail("the server closed the connection"))

    def pause_writing(self) -> None:
        """The loop holds as much as it should."""
        self._paused = self.core.writer.blocked = True

    def resume_writing(self) -> None:
        """It takes more."""
        self._paused = self.core.writer.blocked = False
        resumed, self._resumed = self._resumed, []
        for waiter in resumed:
            waiter.ready = True
        self._wake(resumed)

    # -- calls

    async def usable(self) -> bool:
        """Whether a new call may begin here; a connection that was idle is looked at first."""
        core = self.core
        quiet = not core.draining and not core.busy()
        if quiet and time.monotonic() - self._used > FRESH_S:
            # The loop hears of an end in its next turn and tells us in the one after.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return not core.draining

    async def start(
        self, method: str, body: Body | None, size: int, deadline: float, headers: Headers
    ) -> Call | None:
        """Begin a call and send what no window holds back; None if its time is up.

        Raises:
            Draining: the connection takes no new calls.
        """
        core = self.core
        queued = core.full()
        if queued and not await self._wait_in_queue(deadline):
            return None
        now = time.monotonic()
        idle_s = 0.0 if core.busy() else now - self._used
        timeout_s = None if body is None else max(deadline - now, 0.001)
        call = core.open(method, body, size, timeout_s, headers, queued)
        self._used = now
        if idle_s > LONG_IDLE_S:
            self._keepalive.heard(now)
        if len(core.calls) > 1:
            self._flush_soon()
        else:
            self.flush()
        if call.unsent_bytes:
            try:
                in_time = await self.push(call, deadline)
            except BaseException:
                self.cancel(call)
                raise
            if not in_time:
                self.cancel(call)
                return None
        return call

    async def push(self, call: Call, deadline: float) -> bool:
        """Send what `call` has left as its windows open; False if time is up before that."""
        while call.unsent_bytes and not call.ended:
            room = self.core.writer.push(call, PUSHED)
            self.flush()
            if room is not None and not await self.wait(room, deadline):
                return False
            if self._paused:
                resumed = Waiter()
                self._resumed.append(resumed)
                if not await self.wait(resumed, deadline):
                    return False
        return True

    def cancel(self, call: Call) -> None:
        """Give the call up, unless it has ended: see `Connection.cancel`."""
        self._wake(self.core.cancel(call, time.monotonic()))
        if self._resetting is None and self.core.cancelled:
            self._resetting = self._loop.call_later(GRACE_S + _LATE_S, self._reset_cancelled)
        self.flush()
        self.mark_idle()

    def _reset_cancelled(self) -> None:
        self._resetting = None
        self._wake(self.core.reset_cancelled(time.monotonic()))
        if self.core.cancelled:
            self._resetting = self._loop.call_later(GRACE_S / 2, self._reset_cancelled)
        self.flush()
        self.retire()

    async def complete(self, call: Call, deadline: float) -> bool:
        """Wait for a unary call's end; it is cancelled if that has not come in time."""
        try:
            in_time = await self.wait(call, deadline)
        except BaseException:
            self.cancel(call)
            raise
        self.finished(call)
        return in_time

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

    def _flush_soon(self) -> None:
        """Send with one word to the system what all tasks of this turn of the loop have to send."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    async def wait_closed(self) -> None:
        """Wait until a closed connection is gone; what the peer does not read is dropped."""
        try:
            async with asyncio.timeout(_LINGER_S):
                await self._closed_event.wait()
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
        if deadline < self._timer_at:
            self._set_timer(deadline)
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
        moment = min(moment, time.monotonic() + _WATCH_S)
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
        """Wake those whose time is up, and look after keepalive."""
        self._timer, self._timer_at = None, math.inf
        now = time.monotonic()
        next_at = math.inf
        for waiter, deadline in self._waiting.items():
            if deadline <= now:
                self._wake((waiter,))
            elif deadline < next_at:
                next_at = deadline
        if self.core.calls:
            self._check_keepalive(now)
        if self._waiting and not self.core.lost:
            self._set_timer(next_at)

    def _check_keepalive(self, now: float) -> None:
        if self._heard:  # since the last look, at most 5 s ago: exact enough, and costs no clock
            self._heard = False
            self._keepalive.heard(now)
        if self._keepalive.timed_out(now):
            self._wake(self.core.fail("the connection was lost: the server went silent"))
            self.abort()
        elif self._keepalive.ping_due(now):
            self.core.ping()
            self.flush()
