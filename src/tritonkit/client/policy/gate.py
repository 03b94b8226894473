"""How many calls run at once: the others wait in line, or are told at once that there is no room."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tritonkit.client.policy.settings import Limit
from tritonkit.client.steps import Steps
from tritonkit.errors import DeadlineExceeded, Overloaded

__all__ = ["Gate"]

_WEIGHT = 0.1
"""Of the newest call in the moving average of how long a place is held."""

_KNOWN = 20
"""Calls after which that average is used: the first ones may have waited for connections and models."""


class Gate:
    """Places for calls, given in the order in which they were asked for.

    A place that becomes free goes straight to the first in line: nobody overtakes, and a caller that
    gave up (its time over, its task cancelled) hands on what it was given meanwhile.
    """

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._in_flight = 0
        self._held_s = 0.0
        self._ended = 0
        self._line: deque[_Waiter] = deque()
        self._lock = threading.Lock()

    @property
    def in_flight(self) -> int:
        """Places taken."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """Callers in line."""
        return len(self._line)

    def try_enter(self) -> bool:
        """Take a place if one is free and nobody waits for it."""
        with self._lock:
            if self._in_flight >= self._limit.in_flight or self._line:
                return False
            self._in_flight += 1
            return True

    def enter(self, now: float, deadline: float) -> Steps[None]:
        """Take a place, waiting in line for it.

        Raises:
            Overloaded: the line is full, or so long that the call would be answered too late.
            DeadlineExceeded: the time was over before a place was free.
        """
        waiter = self._queued(deadline - now)
        if waiter is None:
            return
        try:
            yield _Turn(waiter, deadline - now)
        except BaseException:
            if not self._withdrawn(waiter):
                self.leave(None)
            raise
        if self._withdrawn(waiter):
            raise DeadlineExceeded(
                "client",
                found=f"the time was over while {self._in_flight} other calls were in flight",
                wanted=f"a place among {self._limit.in_flight}",
                todo="allow more time with timeout_s, send fewer calls at once, or add servers",
                unprocessed=True,
            )

    def leave(self, held_s: float | None) -> None:
        """Give the place back, or to the first in line.

        Args:
            held_s: seconds it was held, for judging how long the line takes; None if it was not used.
        """
        with self._lock:
            if held_s is not None:
                self._ended += 1
                weight = _WEIGHT if self._ended > 1 / _WEIGHT else 1 / self._ended
                self._held_s += weight * (held_s - self._held_s)
            if self._line:
                self._line.popleft().grant()
            else:
                self._in_flight -= 1

    def _queued(self, left_s: float) -> _Waiter | None:
        """A place in line; None when there is room after all."""
        with self._lock:
            if self._in_flight < self._limit.in_flight and not self._line:
                self._in_flight += 1
                return None
            turns = len(self._line) / self._limit.in_flight + 1
            if len(self._line) >= self._limit.waiting:
                raise self._full("the line is full", left_s)
            # The line moves by `in_flight` places in the time that one is held; then the call itself.
            if self._ended >= _KNOWN and turns * self._held_s + self._held_s > left_s:
                raise self._full("a call in line would be answered too late", left_s)
            waiter = _Waiter()
            self._line.append(waiter)
            return waiter

    def _withdrawn(self, waiter: _Waiter) -> bool:
        """Leave the line; False when the place was given meanwhile."""
        with self._lock:
            if waiter.granted:
                return False
            self._line.remove(waiter)
            return True

    def _full(self, why: str, left_s: float) -> Overloaded:
        return Overloaded(
            "client",
            found=f"{self._in_flight} calls in flight and {len(self._line)} waiting: {why}",
            wanted=f"room for {self._limit.in_flight} and {self._limit.waiting},"
            f" an answer within {max(left_s, 0.0):.3g} s",
            todo="send fewer calls at once, allow more time, add servers, or raise Limit",
            unprocessed=True,
        )


class _Waiter:
    """One caller in line, thread or task; `grant` and `listen` may cross each other."""

    __slots__ = ("_lock", "_wake", "granted")

    def __init__(self) -> None:
        self.granted = False
        self._wake: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def grant(self) -> None:
        """The place is this caller's."""
        with self._lock:
            self.granted = True
            if self._wake is not None:
                self._wake()

    def listen(self, wake: Callable[[], object]) -> bool:
        """Call `wake` once at the grant; False when that was before."""
        with self._lock:
            self._wake = wake
            return not self.granted


class _Turn(NamedTuple):
    """Wait until the place is granted or the time is over."""

    waiter: _Waiter
    seconds: float

    def block(self) -> None:
        """Sleep on a lock."""
        bell = threading.Lock()
        bell.acquire()
        if self.waiter.listen(bell.release):
            bell.acquire(timeout=max(0.0, min(self.seconds, threading.TIMEOUT_MAX)))

    async def wait(self) -> None:
        """Let other tasks run."""
        bell: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ring() -> None:
            if not bell.done():
                bell.set_result(None)

        if self.waiter.listen(ring):
            await asyncio.wait({bell}, timeout=self.seconds)
