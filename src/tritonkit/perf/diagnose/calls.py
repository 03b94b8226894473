"""Calls of a program's own client: an observer records them for a `Watcher`."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from tritonkit.client.observers.events import CallEvent
from tritonkit.perf.diagnose.snapshot import Probe

__all__ = ["CallLog"]

_KEPT = 10_000


class CallLog:
    """The latest calls of a client: `Client(..., observers=[log])`, and `Watcher(..., calls=log)` in the same process.

    Calls that the client's own cache answered are left out, because they say nothing about a server.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[str, Probe]] = deque(maxlen=_KEPT)

    def started(self, model: str) -> None:
        """Ignore the beginning of a call."""

    def headers(self, token: Any) -> tuple[()]:
        """Add nothing to a call."""
        return ()

    def finished(self, token: Any, event: CallEvent) -> None:
        """Record the duration of a call."""
        if event.endpoint or event.error:
            total_ms, wait_ms = 1e3 * event.timing.total_s, 1e3 * event.timing.wait_s
            call = Probe(event.endpoint, time.monotonic(), total_ms, wait_ms, event.error or "")
            self._calls.append((event.model, call))

    def since(self, moment: float, model: str = "") -> tuple[Probe, ...]:
        """Calls that ended after a moment of the monotonic clock, of one model or of all."""
        return tuple(call for name, call in tuple(self._calls) if call.at_s >= moment and (not model or name == model))
