"""A peer that says nothing while calls are under way: when to ask whether it lives, and when not."""

from __future__ import annotations

from typing import Final

__all__ = ["ANSWER_S", "APART_S", "SILENT_S", "Silence"]

SILENT_S: Final = 20.0
"""After so long without a frame the peer is asked for a sign of life."""
ANSWER_S: Final = 20.0
"""So long it has for its answer."""
APART_S: Final = 300.0
"""Triton ends connections that ask more often (--grpc-http2-min-recv-ping-interval-without-data)."""


class Silence:
    """Moments of one connection, in seconds of any clock.

    Args:
        now: when the connection was made.
    """

    def __init__(self, now: float) -> None:
        self._heard = now
        self._asked = now - APART_S

    def heard(self, now: float) -> None:
        """Something came, or the first call since a while began."""
        self._heard = now

    def to_ask(self, now: float) -> bool:
        """Whether a PING should be sent now; then counts it as sent."""
        if now - self._heard < SILENT_S or now - self._asked < APART_S:
            return False
        self._asked = now
        return True

    def over(self, now: float) -> bool:
        """Whether the peer was asked and did not answer."""
        return self._asked > self._heard and now - self._asked >= ANSWER_S
