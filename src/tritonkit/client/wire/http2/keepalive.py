"""Keepalive: when a peer that sends nothing during calls gets a PING, and when it is given up."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["PING_AFTER_S", "PING_INTERVAL_S", "PING_TIMEOUT_S", "QUICK_AFTER_S", "QUICK_TIMEOUT_S", "Keepalive"]

PING_AFTER_S: Final = 20.0
"""Seconds without a frame after which the peer gets a PING."""
PING_TIMEOUT_S: Final = 20.0
"""Seconds in which the peer must acknowledge a PING."""
PING_INTERVAL_S: Final = 330.0
"""Seconds between two PINGs with no answer to a call between them. gRPC's servers, Triton's too, end connections on
the fourth such PING within 300 s of the one before (--grpc-http2-min-recv-ping-interval-without-data)."""

QUICK_AFTER_S: Final = (0.25, 1.0)
"""Seconds before the first and the second PING for calls that another server can take over. No more are sent: one may
cross an answer, after which the server begins to count."""
QUICK_TIMEOUT_S: Final = 0.25
"""Seconds of silence after a PING before such calls go elsewhere; four round trips if that is longer."""
_ROUND_TRIPS: Final = 4


class Keepalive:
    """Moments of one connection, in seconds of any clock.

    Args:
        now: the moment at which the connection was made.
    """

    def __init__(self, now: float) -> None:
        self.began = now
        """When the first of the calls under way began."""
        self.pinged = False
        """Whether a PING has no answer yet."""
        self._heard = now
        self._pinged = -math.inf
        self._pings = 0
        self._heads = 0
        self._moved = 0.0
        self._acknowledged = 0

    def heard(self, now: float) -> None:
        """Note that data came, or that the first call after an idle time began."""
        self._heard = now
        self.pinged = False

    def ping_due(self, now: float, heads: int, quick: bool) -> bool:
        """Whether a PING should be sent now; then counts it as sent.

        Args:
            now: the moment.
            heads: blocks of header fields received so far: with each, the server resets its count of PINGs.
            quick: whether a call is under way that another server can take over.
        """
        if heads != self._heads:
            self._heads, self._pings = heads, 0
        silent_s, after_s = now - self._heard, PING_AFTER_S
        if self._pings < len(QUICK_AFTER_S) and quick:
            silent_s, after_s = min(silent_s, now - self.began), QUICK_AFTER_S[self._pings]
        elif now - self._pinged < PING_INTERVAL_S:
            return False
        if self.pinged or silent_s < after_s:
            return False
        self._pinged = self._moved = now
        self._pings += 1
        self.pinged = True
        return True

    def acknowledged(self, now: float, count: int) -> None:
        """Note the number of bytes that have reached the peer's system so far.

        While the number grows the peer is alive, and the PING may be queued behind these bytes.
        """
        if count != self._acknowledged:
            self._acknowledged, self._moved = count, now

    def spoke(self, now: float) -> bool:
        """Whether data came a moment ago."""
        return now - self._heard < QUICK_AFTER_S[0]

    def silent(self, now: float, round_trip_s: float) -> bool:
        """Whether the peer has been silent long enough for calls to go elsewhere."""
        wanted_s = max(QUICK_TIMEOUT_S, _ROUND_TRIPS * round_trip_s)
        return self.pinged and now - self._moved >= wanted_s

    def timed_out(self, now: float) -> bool:
        """Whether a PING was sent and nothing came since."""
        return self.pinged and now - self._moved >= PING_TIMEOUT_S
