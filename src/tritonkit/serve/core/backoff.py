"""When a server that died is started again, and when it is left alone."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["Backoff"]

_PERIOD_S = 60.0
_FIRST_S = 0.2
_LONGEST_S = 10.0


class Backoff:
    """Waits that double with each death within a minute, up to a number of deaths.

    Args:
        most: deaths within a minute that are too many; 0: the first one is.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._deaths: deque[float] = deque()

    def after_death(self) -> float | None:
        """Seconds to wait before the next start; None where it is to be left alone."""
        now = time.monotonic()
        self._deaths.append(now)
        while self._deaths[0] < now - _PERIOD_S:
            self._deaths.popleft()
        if len(self._deaths) >= max(1, self.most):
            return None
        return float(min(_LONGEST_S, _FIRST_S * 2 ** (len(self._deaths) - 1)))
