"""A peer that says nothing while calls are under way: when to ask whether it lives, and when not."""

from __future__ import annotations

from typing import Final

__all__ = ["PING_AFTER_S", "PING_INTERVAL_S", "PING_TIMEOUT_S", "Keepalive"]

PING_AFTER_S: Final = 20.0
"""After so long without a frame the peer is asked for a sign of life."""
PING_TIMEOUT_S: Final = 20.0
"""So long it has for its answer."""
PING_INTERVAL_S: Final = 300.0
"""Triton ends connections that ask more often (--grpc-http2-min-recv-ping-interval-without-data)."""


class Keepalive:
    """Moments of one connection, in seconds of any clock.

    Args:
        now: when the connection was made.
    """

    def __init__(self, now: float) -> None:
        self._heard = now
        self._asked = now - PING_INTERVAL_S

    def heard(self, now: float) -> None:
        """Something came, or the first call since a while began."""
        self._heard = now

    def ping_due(self, now: float) -> bool:
        """Whether a PING should be sent now; then counts it as sent."""
        if now - self._heard < PING_AFTER_S or now - self._asked < PING_INTERVAL_S:
            return False
        self._asked = now
        return True

    def over(self, now: float) -> bool:
        """Whether the peer was asked and did not answer."""
        return self._asked > self._heard and now - self._asked >= PING_TIMEOUT_S
