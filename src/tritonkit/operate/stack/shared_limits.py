"""Whether a gateway's shared rates hold, as its own counters say it: told once when they do not, and once after."""

from __future__ import annotations

import time
from collections.abc import Callable

from tritonkit.operate.gateway.admin import GatewayAdmin

__all__ = ["SharedLimitsWatch"]

_WELL_S = 30.0


class SharedLimitsWatch:
    """Looks at how many requests have passed without a decision.

    Args:
        admin: of the gateway.
        clock: in seconds.
    """

    def __init__(self, admin: GatewayAdmin, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin, self._clock = admin, clock
        self._known, self._failed_at = 0, float("-inf")
        self._lost = False

    def look(self) -> str:
        """What is to be said now; mostly nothing."""
        found, now = self._admin.undecided(), self._clock()
        # A gateway that was started again counts from 0.
        failed, self._known = found > self._known, found
        if failed:
            self._failed_at = now
            if not self._lost:
                self._lost = True
                return (
                    "shared rates cannot be asked for: requests pass, and each gateway counts alone"
                )
        elif self._lost and now > self._failed_at + _WELL_S:
            self._lost = False
            return f"shared rates hold again: none passed without a decision for {_WELL_S:g} s"
        return ""
