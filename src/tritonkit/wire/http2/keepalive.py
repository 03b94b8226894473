"""A peer that sends nothing while calls are under way: when it gets a PING, and when it is given up."""

from __future__ import annotations

from typing import Final

__all__ = ["PING_AFTER_S", "PING_INTERVAL_S", "PING_TIMEOUT_S", "Keepalive"]

PING_AFTER_S: Final = 20.0
"""After so long without a frame the peer gets a PING."""
PING_TIMEOUT_S: Final = 20.0
"""So long it has to acknowledge it."""
PING_INTERVAL_S: Final = 300.0
"""Between two PINGs: Triton ends connections that send more (--grpc-http2-min-recv-ping-interval-without-data)."""


class Keepalive:
    """Moments of one connection, in seconds of any clock.

    Args:
        now: when the connection was made.
    """

    def __init__(self, now: float) -> None:
        self._heard = now
        self._pinged = now - PING_INTERVAL_S

    def heard(self, now: float) -> None:
        """Something came, or the first call since a while began."""
        self._heard = now

    def ping_due(self, now: float) -> bool:
        """Whether a PING should be sent now; then counts it as sent."""
        if now - self._heard < PING_AFTER_S or now - self._pinged < PING_INTERVAL_S:
            return False
        self._pinged = now
        return True

    def timed_out(self, now: float) -> bool:
        """Whether a PING was sent and nothing came since."""
        return self._pinged > self._heard and now - self._pinged >= PING_TIMEOUT_S
