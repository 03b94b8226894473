"""Decides when a server that died is started again, and when it is given up."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["Backoff"]

_PERIOD_S = 60.0
_FIRST_S = 0.2
_LONGEST_S = 10.0


class Backoff:
    """Waits that double with each death within a minute.

    A server that was ready before is always started again: a caller whose request kills it must not be able to
    keep it down. One that fails to become ready `most` times in a row is given up.

    Args:
        most: starts in a row that did not become ready; 0: the first death is the last.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._in_vain = 0
        self._deaths: deque[float] = deque()

    def after_death(self, *, was_ready: bool) -> float | None:
        """Seconds to wait before the next start; None if the server is given up.

        Args:
            was_ready: whether it had become ready before it died.
        """
        now = time.monotonic()
        self._in_vain = 0 if was_ready else self._in_vain + 1
        if self._in_vain >= self.most:
            return None
        self._deaths.append(now)
        while self._deaths[0] < now - _PERIOD_S:
            self._deaths.popleft()
        return float(min(_LONGEST_S, _FIRST_S * 2 ** (len(self._deaths) - 1)))
