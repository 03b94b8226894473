"""Whether a gateway's shared rates hold, according to its own counters."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["SharedLimitsWatch"]

_PAUSE_S = 30.0
"""Seconds between two messages about the same problem; after the same time without a failure, rates hold again."""


class SharedLimitsWatch:
    """Counts the requests that have passed without a decision.

    Args:
        undecided: a function that returns their number since the gateway's start; None if it does not answer.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, undecided: Callable[[], int | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._undecided, self._clock = undecided, clock
        self._known, self._untold = 0, 0
        self._told_at = self._failed_at = float("-inf")
        self._lost = False

    def look(self) -> str:
        """A message about the shared limits' state; usually empty."""
        undecided, now = self._undecided(), self._clock()
        if undecided is None:
            return ""
        # A gateway that was started again counts from 0.
        new = undecided - self._known if undecided >= self._known else undecided
        self._known = undecided
        if new:
            self._failed_at, self._untold = now, self._untold + new
        if self._untold and now >= self._told_at + _PAUSE_S:
            message = (
                f"{self._untold} requests passed without a decision on their shared rate: each gateway counts alone"
            )
            self._lost, self._untold, self._told_at = True, 0, now
            return message
        if self._lost and now >= self._failed_at + _PAUSE_S:
            self._lost = False
            return f"shared rates hold: no request passed without a decision for {_PAUSE_S:g} s"
        return ""
