"""What connections shared by threads and by tasks have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Final

from tritonkit.wire.http2.call import Call
from tritonkit.wire.http2.connection import Connection
from tritonkit.wire.http2.keepalive import Keepalive

__all__ = ["FRESH_S", "LONG_IDLE_S", "PUSHED", "SharedConnection"]

PUSHED: Final = 2**20
"""Bytes that a call sends in one go, for others to have their turn."""
FRESH_S: Final = 0.01
"""A connection idle for less is not looked at before its next use."""
LONG_IDLE_S: Final = 1.0
"""After so long idle the time for keepalive starts with the next call."""


class SharedConnection(ABC):
    """A connection that several callers use.

    Args:
        core: reads and writes the frames.
    """

    def __init__(self, core: Connection) -> None:
        self.core = core
        self._used = time.monotonic()
        self._keepalive = Keepalive(self._used)

    @abstractmethod
    def cancel(self, call: Call) -> None:
        """Cancel the call, unless it has ended: see `Connection.cancel`."""

    @abstractmethod
    def close(self, why: str) -> None:
        """Close the connection; calls under way end, with the reason."""

    def finished(self, call: Call) -> None:
        """To be called after each call: cancels it if its answer was refused amid it."""
        if call.ended:
            self.mark_idle()
        else:
            self.cancel(call)

    def mark_idle(self) -> None:
        """Note when the connection fell idle, and close a drained one."""
        self._used = time.monotonic()
        if not self.core.calls:
            self.retire()

    def retire(self) -> None:
        """Close the connection if it takes no calls and has none."""
        if self.core.draining and not self.core.calls:
            self.close(self.core.draining)
