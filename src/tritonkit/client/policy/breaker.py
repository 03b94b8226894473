"""The circuit breaker of one server: closed, open, half-open, by the rate of failures in a window of time."""

from __future__ import annotations

import sys
from typing import Literal, TypeAlias

from tritonkit.client.policy.settings import Breaker

__all__ = ["CircuitBreaker"]

State: TypeAlias = Literal["closed", "open", "half-open"]

_BUCKETS = 10

_NEVER_OPENS = Breaker(least_calls=sys.maxsize)


class CircuitBreaker:
    """Whether calls may go to one server; the caller sees to it that only one thread is in here.

    Each change of state starts a new generation. `enter` gives the generation a call belongs to and
    `leave` takes it back: a call that began before the circuit opened says nothing about the server
    afterwards. A probe that does not end keeps its place for `probe_s` only.

    Args:
        settings: None: it never opens.
    """

    _index: int
    _calls: int
    _failures: int

    def __init__(self, settings: Breaker | None) -> None:
        self._settings = settings or _NEVER_OPENS
        self._open_until = 0.0
        self.state: State = "closed"
        self.generation = 0
        self._answered_probes = 0
        self._probes: list[float] = []
        """When each probe under way began, in order; those without a place any more are left out."""
        self._clear()

    def admits(self, now: float) -> bool:
        """Whether a call may be sent now; changes nothing."""
        return self.reopens_in(now) <= 0.0

    def reopens_in(self, now: float) -> float:
        """Seconds until a call is let through at the latest; a probe's answer may let it through before."""
        if self.state == "closed":
            return 0.0
        if self.state == "open":
            return max(self._open_until - now, 0.0)
        most = self._settings.probes
        if len(self._probes) < most:
            return 0.0
        return max(self._probes[-most] + self._settings.probe_s - now, 0.0)

    def enter(self, now: float) -> int:
        """A call that `admits` let through is sent: the generation to give back to `leave`."""
        if self.state != "closed":
            if self.state == "open":
                self._turn("half-open")
            probe_s = self._settings.probe_s
            self._probes = [began for began in self._probes if now < began + probe_s] + [now]
        return self.generation

    def leave(self, generation: int, now: float, good: bool | None, began: float = 0.0) -> None:
        """The call is over.

        Args:
            generation: what `enter` gave.
            now: the moment.
            began: the moment of `enter`.
            good: True: the server answered. False: it failed. None: the call says nothing about it.
        """
        if generation != self.generation:
            return
        if self.state != "closed":
            self._probed(now, good, began)
        elif good is not None:
            index = int(now * _BUCKETS / self._settings.window_s)
            if index != self._index:
                self._roll(index)
            bucket = self._window[index % _BUCKETS]
            bucket[0] += 1
            self._calls += 1
            if not good:
                bucket[1] += 1
                self._failures += 1
                self._judge(now)

    def _judge(self, now: float) -> None:
        settings, calls = self._settings, self._calls
        if calls >= settings.least_calls and self._failures >= settings.failure_rate * calls:
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

    def _roll(self, index: int) -> None:
        """Drop the buckets that fell out of the window."""
        if index - self._index >= _BUCKETS or index < self._index:
            self._clear()
        else:
            for old in range(self._index + 1, index + 1):
                bucket = self._window[old % _BUCKETS]
                self._calls -= bucket[0]
                self._failures -= bucket[1]
                bucket[:] = (0, 0)
        self._index = index

    def _open(self, now: float) -> None:
        self._open_until = now + self._settings.open_s
        self._turn("open")

    def _turn(self, state: State) -> None:
        self.state = state
        self.generation += 1
        self._answered_probes = 0
        self._probes = []
        self._clear()

    def _clear(self) -> None:
        self._window = [[0, 0] for _ in range(_BUCKETS)]
        self._index = -1
        self._calls = self._failures = 0
