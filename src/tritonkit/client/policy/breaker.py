"""The circuit of one server: closed, open, half-open, by the rate of failures in a window of time."""

from __future__ import annotations

from typing import Literal

from tritonkit.client.policy.settings import Breaker

__all__ = ["Circuit"]

_BUCKETS = 10


class Circuit:
    """Whether calls may go to one server; the caller sees to it that only one thread is in here.

    Each change of state starts a new era. `enter` gives the era a call belongs to and `leave` takes it
    back: a call that began before the circuit opened says nothing about the server afterwards. A probe
    that does not end keeps its place for `probe_s` only.
    """

    __slots__ = (
        "_calls",
        "_failures",
        "_good",
        "_index",
        "_probes",
        "_settings",
        "_until",
        "_window",
        "era",
        "state",
    )

    def __init__(self, settings: Breaker | None) -> None:
        self._settings = settings
        self._window: list[list[int]] = []
        self._index = -1
        self._calls = self._failures = 0
        self._clear()
        self.state: Literal["closed", "open", "half-open"] = "closed"
        self.era = 0
        self._until = 0.0
        self._good = 0
        self._probes: list[float] = []
        """When each probe under way began, in order; those without a place any more are left out."""

    def admits(self, now: float) -> bool:
        """Whether a call may be sent now; changes nothing."""
        if self.state == "closed" or self._settings is None:
            return True
        if self.state == "open":
            return now >= self._until
        probes, most = self._probes, self._settings.probes
        return len(probes) < most or now >= probes[-most] + self._settings.probe_s

    def reopens_in(self, now: float) -> float:
        """Seconds until a call is let through at the latest; a probe's answer may let it through before."""
        if self._settings is None or self.admits(now):
            return 0.0
        if self.state == "open":
            return self._until - now
        return self._probes[-self._settings.probes] + self._settings.probe_s - now

    def enter(self, now: float) -> int:
        """A call that `admits` let through is sent: the era to give back to `leave`."""
        if self.state != "closed":
            if self.state == "open":
                self._turn("half-open")
            probe_s = self._settings.probe_s if self._settings is not None else 0.0
            self._probes = [began for began in self._probes if now < began + probe_s] + [now]
        return self.era

    def leave(self, era: int, now: float, good: bool | None, began: float = 0.0) -> None:
        """The call is over.

        Args:
            era: what `enter` gave.
            now: the moment.
            began: the moment of `enter`.
            good: True: the server answered. False: it failed. None: the call says nothing about it.
        """
        if era != self.era or self._settings is None:
            return
        if self.state == "closed":
            if good is not None:
                self._count(now, failed=not good)
        else:
            self._probed(now, good, began)

    def _probed(self, now: float, good: bool | None, began: float) -> None:
        assert self._settings is not None  # noqa: S101 - for mypy: without settings it stays closed
        if began in self._probes:
            self._probes.remove(began)
        if good is False:
            self._open(now)
        elif good:
            self._good += 1
            if self._good >= self._settings.probes:
                self._turn("closed")

    def _count(self, now: float, *, failed: bool) -> None:
        settings = self._settings
        assert settings is not None  # noqa: S101 - as above
        index = int(now * _BUCKETS / settings.window_s)
        if index != self._index:
            self._roll(index)
        bucket = self._window[index % _BUCKETS]
        bucket[0] += 1
        self._calls += 1
        if failed:
            bucket[1] += 1
            self._failures += 1
            if self._calls >= settings.least_calls and (
                self._failures >= settings.failure_rate * self._calls
            ):
                self._open(now)

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
        assert self._settings is not None  # noqa: S101 - as above
        self._until = now + self._settings.open_s
        self._turn("open")

    def _turn(self, state: Literal["closed", "open", "half-open"]) -> None:
        self.state = state
        self.era += 1
        self._good = 0
        self._probes = []
        self._clear()

    def _clear(self) -> None:
        self._window = [[0, 0] for _ in range(_BUCKETS)]
        self._index = -1
        self._calls = self._failures = 0
