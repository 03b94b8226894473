"""When something that failed is left alone, and when it is tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Rest"]

_FIRST_S = 0.1
_LONGEST_S = 5.0


class Rest:
    """Left alone after a failure: 0.1 s at first, twice as long each time, 5 s at most.

    At the end of a pause one caller tries, and the others keep away until it knows. Failures of one
    outage that come in together count once. Threads may share it.
    """

    __slots__ = ("_clock", "_failed_at", "_lock", "_pause_s", "_until")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pause_s = 0.0
        self._until = 0.0
        self._failed_at = float("-inf")

    @property
    def pause_s(self) -> float:
        """How long the pause is; 0 while all is well."""
        return self._pause_s

    def may_try(self) -> bool:
        """Whether this caller may use it now."""
        if not self._pause_s:
            return True
        with self._lock:
            now = self._clock()
            if now < self._until:
                return False
            self._until = now + self._pause_s
            return True

    def failed(self, began: float) -> bool:
        """Note a failed try that began at `began`; True if this is news: all was well until now."""
        with self._lock:
            if began < self._failed_at:
                return False
            news = not self._pause_s
            self._failed_at = self._clock()
            self._pause_s = min(_LONGEST_S, 2 * self._pause_s) or _FIRST_S
            self._until = self._failed_at + self._pause_s
            return news

    def worked(self) -> bool:
        """Note a try that went well; True if this is news."""
        if not self._pause_s:
            return False
        with self._lock:
            news = bool(self._pause_s)
            self._pause_s = 0.0
            return news
