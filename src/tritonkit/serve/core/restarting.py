"""A companion process of the server, such as Envoy, that is started again when it dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from .backoff import Backoff

__all__ = ["Restarting"]

_MOST_DEATHS = 10
_STABLE_S = 5.0


class _Process(Protocol):
    def poll(self) -> int | None:
        """The exit code; None while the process runs."""
        ...


P = TypeVar("P", bound=_Process)


class Restarting(Generic[P]):
    """Keeps one process running; `poll` is called every tick.

    Args:
        start: function that starts it.
        on_death: function that takes the exit code, and whether the process will be started again.

    `process` is the latest process.
    """

    def __init__(self, start: Callable[[], P], on_death: Callable[[int, bool], None]) -> None:
        self._start, self._on_death = start, on_death
        self._backoff = Backoff(_MOST_DEATHS)
        self._start_at: float | None = None
        self.process = start()
        self._started_at = time.monotonic()

    @property
    def given_up(self) -> bool:
        """Whether it has died and will not be started again."""
        return self._start_at == float("inf")

    def poll(self) -> None:
        """Start it again if it has died and the delay has passed."""
        code = self.process.poll()
        if code is None:
            return
        if self._start_at is None:
            stable = time.monotonic() - self._started_at > _STABLE_S
            delay_s = self._backoff.after_death(was_ready=stable)
            self._start_at = float("inf") if delay_s is None else time.monotonic() + delay_s
            self._on_death(code, delay_s is not None)
        if time.monotonic() >= self._start_at:
            self.process, self._start_at = self._start(), None
            self._started_at = time.monotonic()
