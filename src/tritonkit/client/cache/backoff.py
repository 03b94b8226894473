"""When something that failed is left alone, and when it is tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["RedisBackoff"]

_FIRST_S = 0.1
_LONGEST_S = 5.0


class RedisBackoff:
    """Pauses after failures: 0.1 s at first, twice as long each time, 5 s at most.

    At the end of a pause one caller tries, and the others keep away until the outcome is known. Failures of
    one outage that come in together count once. Threads may share it.
    """

    __slots__ = ("_clock", "_failed_at", "_lock", "_until", "pause_s")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.pause_s = 0.0
        """How long the pause is; 0 while all is well."""
        self._until = 0.0
        self._failed_at = float("-inf")

    def may_try(self) -> bool:
        """Whether this caller may use it now."""
        if not self.pause_s:
            return True
        with self._lock:
            now = self._clock()
            if now < self._until:
                return False
            self._until = now + self.pause_s
            return True

    def failed(self, began: float) -> bool:
        """Note a failed try that began at `began`; True if all was well until now."""
        with self._lock:
            if began < self._failed_at:
                return False
            first = not self.pause_s
            self._failed_at = self._clock()
            self.pause_s = min(_LONGEST_S, 2 * self.pause_s) or _FIRST_S
            self._until = self._failed_at + self.pause_s
            return first

    def worked(self) -> bool:
        """Note a try that went well; True if the last one had failed."""
        if not self.pause_s:
            return False
        with self._lock:
            recovered, self.pause_s = bool(self.pause_s), 0.0
            return recovered
