"""A bound on concurrent calls: further calls wait in line, or are refused immediately if the line is full."""

from __future__ import annotations

import threading
from collections import deque

from tritonkit.client.policy.settings import Limit
from tritonkit.client.steps import Steps
from tritonkit.client.waiting import Wakeup
from tritonkit.errors import DeadlineExceeded, Overloaded

__all__ = ["ConcurrencyLimiter"]

_WEIGHT = 0.1  # of the newest call in the moving average of how long a place is held
_LEAST_CALLS = 20  # after which that average counts: the first may have waited for a connection


class _Waiter(Wakeup):
    """One caller in line."""

    granted = False


class ConcurrencyLimiter:
    """Places for calls, given in the order of the requests for them.

    A place that becomes free goes straight to the first in line, so no call overtakes another. A caller that
    gave up (its time over, its task cancelled) hands on a place that it was given meanwhile.
    """

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._held_s = 0.0
        self._ended = 0
        self._line: deque[_Waiter] = deque()
        self._lock = threading.Lock()
        self.in_flight = 0  # places taken

    @property
    def waiting(self) -> int:
        """Callers in line."""
        return len(self._line)

    def try_acquire(self) -> bool:
        """Take a place if one is free and no call waits for it."""
        with self._lock:
            if self.in_flight >= self._limit.in_flight or self._line:
                return False
            self.in_flight += 1
            return True

    def acquire(self, seconds: float) -> Steps[None]:
        """Take a place, waiting in line for at most `seconds`.

        Raises:
            Overloaded: the line is full, or so long that the call would be answered too late.
            DeadlineExceeded: the time was over before a place was free.
        """
        with self._lock:
            self._check_line(seconds)
            waiter = _Waiter(seconds)
            self._line.append(waiter)
            self._grant()  # there may be room after all
        try:
            yield waiter
        except BaseException:
            if not self._withdrawn(waiter):
                self.release(None)
            raise
        if self._withdrawn(waiter):
            raise DeadlineExceeded(
                "client",
                found=f"the time was over while {self.in_flight} other calls were in flight",
                wanted=f"a place among {self._limit.in_flight}",
                todo="allow more time with timeout_s, send fewer concurrent calls, or add servers",
                unprocessed=True,
            )

    def release(self, held_s: float | None) -> None:
        """Give the place back, or to the first in line.

        Args:
            held_s: seconds it was held, for judging how long the line takes; None if it was not used.
        """
        with self._lock:
            if held_s is not None:
                self._ended += 1
                weight = _WEIGHT if self._ended > 1 / _WEIGHT else 1 / self._ended
                self._held_s += weight * (held_s - self._held_s)
            self.in_flight -= 1
            if self._line:
                self._grant()

    def _grant(self) -> None:
        """Give free places to the first in line."""
        while self._line and self.in_flight < self._limit.in_flight:
            self.in_flight += 1
            waiter = self._line.popleft()
            waiter.granted = True
            waiter.wake()

    def _withdrawn(self, waiter: _Waiter) -> bool:
        """Leave the line; False when the place was given meanwhile."""
        with self._lock:
            if not waiter.granted:
                self._line.remove(waiter)
            return not waiter.granted

    def _check_line(self, left_s: float) -> None:
        """Refuse a call if the line is full, or if it would be answered too late."""
        places, waiting = self._limit.in_flight, self.waiting
        if self.in_flight < places:
            return
        # The line moves by `places` in the time that one is held; then the call itself.
        late = (waiting / places + 2) * self._held_s > left_s
        if waiting >= self._limit.waiting:
            why = "the line is full"
        elif late and self._ended >= _LEAST_CALLS:
            why = "a call in line would be answered too late"
        else:
            return
        raise Overloaded(
            "client",
            found=f"{self.in_flight} calls in flight and {waiting} waiting: {why}",
            wanted=f"room for {places} and {self._limit.waiting}, an answer within {max(left_s, 0.0):.3g} s",
            todo="send fewer concurrent calls, allow more time, add servers, or raise Limit",
            unprocessed=True,
        )
