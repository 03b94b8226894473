"""One connection shared by threads, without a thread of its own.

One of the threads that wait on it reads the socket for all and wakes those whose answer
came. When its own has come, it wakes another to read. A thread sends its own request, and
with it what others have left in `core.writer.out` meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

from tritonkit.client.wire.http2.call import Call, CallRequest, Waiter
from tritonkit.client.wire.http2.connect import reason
from tritonkit.client.wire.http2.connection import GRACE_S, Connection
from tritonkit.client.wire.http2.shared_connection import ASKED_S, ENDED, PUSHED, SILENT, SharedConnection
from tritonkit.client.wire.http2.socket_io import SLICE_S, SocketIO
from tritonkit.client.wire.transport import Body

__all__ = ["ThreadConnection"]

_BLOCKED_S: Final = 0.05
_LATE_S: Final = 0.01


class ThreadConnection(SharedConnection):
    """A connection over a connected socket; deadlines are `time.monotonic()` moments."""

    def __init__(self, socket: SocketIO, core: Connection) -> None:
        super().__init__(core)
        self._socket = socket
        self._lock = threading.Lock()
        """Held for a moment, for `core` and what is below; never while the socket is used."""
        self._sending = threading.Lock()
        """Held while sending, which waits for nothing; may take `_lock`, not the other way."""
        self._has_reader = False
        self._sleepers: dict[Waiter, None] = {}
        self._closed = False
        self._resetting: threading.Timer | None = None

    # -- calls

    def usable(self) -> bool:
        """Whether a new call may begin here; a connection that was idle is checked first."""
        if not self._has_reader and self._is_stale():
            self._read_in_turn(0.0)
        return not self.core.draining

    def start(self, request: CallRequest) -> Call | None:
        """Begin a call as `Connection.open` does, once there is room for it; None if its time is up before."""
        core = self.core
        with self._lock:
            if core.cancelled:
                self._wake(core.reset_cancelled(time.monotonic()))
            place = core.enqueue() if core.full() else None
            if place is None:
                call = self._open(request, False)
        if place is not None:
            if not self._wait_in_queue(place, request.deadline):
                return None
            with self._lock:
                call = self._open(request, True)
        self.flush()
        return call

    def push(self, call: Call, deadline: float) -> bool:
        """Send what `call` has left as its windows open; False if time is up before that."""
        while call.unsent_bytes and not call.ended:
            with self._lock:
                room = self.core.writer.push(call, PUSHED)
            self.flush()
            if room is not None and not self.wait(room, deadline):
                return False
            while self._socket.unsent and not call.ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                # If no thread reads, this one does: a peer that waits for us to read might itself not read.
                if not self._read_in_turn(min(left, SLICE_S)):
                    self._wait_writable(left)
        return True

    def write(self, call: Call, body: Body, size: int) -> None:
        """Add a message to a stream; `push` sends it."""
        with self._lock:
            self.core.writer.write(call, body, size)

    def finish(self, call: Call) -> None:
        """Say that no message will follow."""
        with self._lock:
            self.core.writer.finish(call)
        self.flush()

    def read(self, call: Call) -> memoryview | None:
        """The stream's oldest message not yet read, if there is one."""
        with self._lock:
            message = self.core.read(call)
        if self.core.writer.out:
            self.flush()
        return message

    def cancel(self, call: Call) -> None:
        """Give the call up, unless it has ended: see `Connection.cancel`."""
        with self._lock:
            self._used = time.monotonic()
            self._wake(self.core.cancel(call, self._used))
            self._reset_later()
        self.flush()
        self._socket.wake_reader()
        self.retire()

    def _reset_later(self) -> None:
        """See to it that cancelled calls are reset also on an idle connection."""
        if self._resetting is None and self.core.cancelled:
            self._resetting = threading.Timer(GRACE_S + _LATE_S, self._reset_cancelled)
            self._resetting.daemon = True
            with contextlib.suppress(RuntimeError):  # the interpreter is ending
                self._resetting.start()

    def _reset_cancelled(self) -> None:
        self._read_in_turn(0.0)  # an answer may be there that was not read
        with self._lock:
            self._resetting = None
            self._wake(self.core.reset_cancelled(time.monotonic()))
            self._reset_later()
        self.flush()
        self.retire()

    def complete(self, call: Call, deadline: float) -> bool:
        """Send the rest of a unary call and wait for its end; it is cancelled if that has not come in time."""
        try:
            if call.unsent_bytes and not self.push(call, deadline):
                return False
            return self.wait(call, deadline)
        finally:
            self.finished(call)

    def close(self, why: str) -> None:
        """Close the connection; calls under way end, with the reason."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._wake(self.core.fail(why, 0))
        self.flush()
        self._socket.shut()
        self._release()

    def discard(self) -> None:
        """Drop a forked copy of the connection without notifying the peer."""
        self._closed = True
        self._socket.close()

    # -- waiting

    def make_cancellable(self, waiter: Waiter) -> None:
        """Let `cancel` in another thread end a wait for it immediately from now on."""
        with self._lock:
            self._socket.enable_wakeup()
            waiter.cancellable = True

    def wait(self, waiter: Waiter, deadline: float) -> bool:
        """Sleep until `waiter`, for which no other thread waits, is ready; False when the deadline passes first."""
        while True:
            left = deadline - time.monotonic()
            with self._lock:
                if waiter.ready or left <= 0:
                    return waiter.ready
                reads = not self._has_reader
                if reads:
                    self._has_reader = True
                else:
                    asleep = waiter.sleeper = threading.Lock()
                    asleep.acquire()
                    self._sleepers[waiter] = None
            if reads:
                self._read_until(waiter, deadline)
            else:
                self._sleep(waiter, asleep, left)

    def _read_until(self, waiter: Waiter, deadline: float) -> None:
        """Read for all until `waiter` is ready or its time is up."""
        try:
            while not waiter.ready and (left := deadline - time.monotonic()) > 0:
                self._read_once(left, waiter.cancellable)
        finally:
            self._release_reader()

    def _sleep(self, waiter: Waiter, asleep: threading.Lock, left: float) -> None:
        """Sleep until the thread that reads releases the lock."""
        try:
            if self._socket.unsent:
                self._wait_writable(left)
            else:
                asleep.acquire(True, min(left, threading.TIMEOUT_MAX))
        finally:
            with self._lock:
                waiter.sleeper = None
                self._sleepers.pop(waiter, None)
                # It may be this thread that was woken to read.
                if not self._has_reader:
                    self._call_next()

    def _release_reader(self) -> None:
        with self._lock:
            self._has_reader = False
            self._call_next()
        if self._closed:
            self._release()

    def _call_next(self) -> None:
        """Wake the one who has waited longest: its answer is likely the next, and it can read."""
        for waiter in self._sleepers:
            if waiter.sleeper is not None:
                self._wake((waiter,))
                return

    def _wake(self, woken: Iterable[Waiter]) -> None:
        """Release the waiters' locks; the caller holds `_lock`, because no lock may be released twice."""
        for waiter in woken:
            asleep = waiter.sleeper
            if asleep is not None:
                waiter.sleeper = None
                asleep.release()

    def _wait_in_queue(self, place: Waiter, deadline: float) -> bool:
        """Wait for a place among the peer's allowed concurrent calls; False if time is up."""
        self.make_cancellable(place)
        let_in = False
        try:
            let_in = self.wait(place, deadline)
        finally:
            if not let_in:
                with self._lock:
                    self._wake(self.core.dequeue(place))
        return let_in

    # -- bytes

    def flush(self) -> None:
        """Send all pending bytes, unless another thread is sending: that one then sends ours too."""
        while self.core.writer.out or self._socket.pending():
            if not self._sending.acquire(False):
                return
            try:
                with self._lock:
                    out, self.core.writer.out = self.core.writer.out, []
                self.core.writer.blocked = not self._socket.send(out)
                if self.core.writer.blocked:
                    return
            except OSError as error:
                self._lost(f"the connection was lost: {reason(error)}")
                return
            finally:
                self._sending.release()

    def _wait_writable(self, left: float) -> None:
        self._socket.wait_writable(min(left, _BLOCKED_S))
        self.flush()

    def _read_in_turn(self, left: float) -> bool:
        """Read once for all threads, for at most this many seconds; False if another thread reads or none may."""
        with self._lock:
            if self._has_reader or self._closed:
                return False
            self._has_reader = True
        try:
            self._read_once(left, False)
        finally:
            self._release_reader()
        return True

    def _read_once(self, left: float, listening: bool) -> None:
        """One turn of the thread that reads; the loss of the connection ends every call."""
        core = self.core
        began = 0.0
        if self._keepalive.pinged and left > 0:
            began, left = time.monotonic(), min(left, ASKED_S)
        try:
            data = self._socket.receive(min(left, GRACE_S) if core.cancelled else left, listening)
        except OSError as error:
            self._lost(f"the connection was lost: {reason(error)}")
            return
        with self._lock:
            if data is not None:
                self._keepalive.heard(time.monotonic())
                self._wake(core.receive(data) if data else core.fail(ENDED))
            if core.cancelled:
                self._wake(core.reset_cancelled(time.monotonic()))
        if data is None and left > 0:  # idle connections are not asked
            self._check_keepalive(began)
        if core.writer.out or self._socket.unsent:
            self.flush()

    def _lost(self, why: str) -> None:
        with self._lock:
            self._wake(self.core.fail(why))
            self.core.writer.out = []
            self._socket.unsent = []
        self._socket.shut()

    def _check_keepalive(self, until: float) -> None:
        now = time.monotonic()
        if self._keepalive.timed_out(now):
            self._lost(SILENT)
            return
        with self._lock:
            woken, calls = self._look_after(now, until)
            self._wake(woken)
        for call in calls:
            if call.elsewhere is not None and call.elsewhere(True):
                with self._lock:
                    self._wake(self.core.forsake(call, SILENT))

    def _socket_of(self) -> Any:
        return self._socket.sock

    def _release(self) -> None:
        """Free the socket once no thread uses it: the thread that reads does that itself when it stops."""
        with self._sending, self._lock:
            if not self._has_reader:
                self._socket.close()
