"""The circuit breaker of one server: closed, open, half-open, by the rate of failures in a window of time."""

from __future__ import annotations

import sys
from collections import deque
from typing import Literal

from tritonkit.client.policy.settings import Breaker

__all__ = ["CircuitBreaker"]

_PARTS = 10  # of the window: a part falls out of it as a whole

_NEVER_OPENS = Breaker(least_calls=sys.maxsize)


class CircuitBreaker:
    """Decides whether calls may go to one server; the caller ensures that only one thread is in here.

    Each change of state starts a new generation. `enter` returns a call's generation and
    `leave` takes it back: a call that began before the circuit opened says nothing about the server
    afterwards. A probe that does not end keeps its place only for `probe_s`.

    Args:
        settings: None: it never opens.
    """

    state: Literal["closed", "open", "half-open"]

    def __init__(self, settings: Breaker | None) -> None:
        self._settings = settings or _NEVER_OPENS
        self._open_until = 0.0
        self.generation = -1
        self._turn("closed")

    def _turn(self, state: Literal["closed", "open", "half-open"]) -> None:
        self.state = state
        self.generation += 1
        self._answered_probes = 0
        # When each probe under way began, in order; those without a place any more are left out.
        self._probes: list[float] = []
        # Number, calls and failures of each part of the window that had calls.
        self._window: deque[list[int]] = deque()

    def admits(self, now: float) -> bool:
        """Whether a call may be sent now; changes nothing."""
        return self.state == "closed" or self.reopens_in(now) <= 0.0

    def reopens_in(self, now: float) -> float:
        """Most seconds until a call is let through; a probe's answer may let it through earlier."""
        if self.state == "closed":
            return 0.0
        if self.state == "open":
            return max(self._open_until - now, 0.0)
        most = self._settings.probes
        if len(self._probes) < most:
            return 0.0
        return max(self._probes[-most] + self._settings.probe_s - now, 0.0)

    def enter(self, now: float) -> int:
        """Note that an admitted call is sent; the result is its generation for `leave`."""
        if self.state != "closed":
            if self.state == "open":
                self._turn("half-open")
            probe_s = self._settings.probe_s
            self._probes = [began for began in self._probes if now < began + probe_s] + [now]
        return self.generation

    def leave(self, generation: int, now: float, good: bool | None, began: float = 0.0) -> None:
        """Note that the call is over.

        Args:
            generation: the result of `enter`.
            now: the moment.
            began: the moment of `enter`.
            good: True: the server answered. False: it failed. None: the call says nothing about it.
        """
        if generation != self.generation:
            return
        if self.state != "closed":
            self._probed(now, good, began)
        elif good is not None:
            window, number = self._window, int(now * _PARTS / self._settings.window_s)
            if not window or number > window[-1][0]:
                window.append([number, 0, 0])
                while window[0][0] <= number - _PARTS:
                    window.popleft()
            window[-1][1] += 1
            if not good:
                window[-1][2] += 1
                self._judge(now)

    def _judge(self, now: float) -> None:
        settings, window = self._settings, self._window
        calls, failures = sum(part[1] for part in window), sum(part[2] for part in window)
        if calls >= settings.least_calls and failures >= settings.failure_rate * calls:
            self._open(now)

    def _probed(self, now: float, good: bool | None, began: float) -> None:
        if began in self._probes:
            self._probes.remove(began)
        if good is False:
            self._open(now)
        elif good:
            self._answered_probes += 1
            if self._answered_probes >= self._settings.probes:
                self._turn("closed")

    def _open(self, now: float) -> None:
        self._open_until = now + self._settings.open_s
        self._turn("open")
