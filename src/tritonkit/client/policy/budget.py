"""A bound on a client's extra load: answered calls pay for retries and hedges."""

from __future__ import annotations

import math
import threading

__all__ = ["ALLOWANCE", "RetryBudget"]

ALLOWANCE = 10.0
"""Tokens at the start, which an idle client keeps."""

_FORGET_S = 10.0
"""Seconds in which savings above the allowance shrink to a third, so a burst cannot spend an hour's savings."""

_LOOK_S = 0.5


class RetryBudget:
    """A bucket of tokens shared by all calls of a client.

    Over any time, at most `ALLOWANCE + share * answered` tokens are spent: in an outage, when
    nothing is answered, only the savings. The bucket suffices for about a second of calls when
    one server of several breaks, and never shrinks below the allowance once that is earned.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._tokens = ALLOWANCE if share > 0 else 0.0
        self._latest = -math.inf
        self._lock = threading.Lock()

    @property
    def tokens(self) -> float:
        """The remaining budget."""
        return self._tokens

    def earn(self, now: float) -> None:
        """Note a call that was answered at its first attempt."""
        with self._lock:
            if now - self._latest > _LOOK_S:
                self._forget(now)
            self._tokens += self._share

    def spend(self, now: float) -> bool:
        """Take one token for another message; False if there is none."""
        with self._lock:
            self._forget(now)
            # Ten tenths earned are 0.9999...: a rounding error must not cost a retry.
            if self._tokens < 1 - 1e-9:
                return False
            self._tokens = max(0.0, self._tokens - 1)
            return True

    def _forget(self, now: float) -> None:
        savings = self._tokens - ALLOWANCE
        if savings > 0 and now > self._latest:
            self._tokens = ALLOWANCE + savings * math.exp((self._latest - now) / _FORGET_S)
        self._latest = max(now, self._latest)
