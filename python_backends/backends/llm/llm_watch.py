"""Watches callers and writes metrics in a thread of its own, so that no token waits for these messages to Triton."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import TYPE_CHECKING

from llm_engine import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from llm_engine import Engine
    from llm_sending import Reply

_LOOK_S = 0.05
"""Least interval between two checks of a request,"""
_LOOK_SHARE = 0.01
"""which grows if checks would take more of the engine's time, which waits for them."""
_METRICS_S = 0.5


class Watch:
    """Ends sequences that nobody waits for, or whose time is over.

    Args:
        engine: the engine that runs the sequences.
        write_metrics: function that writes metrics and tells whether they still change.
        log: function that takes a line about a failure.
    """

    def __init__(self, engine: Engine, write_metrics: Callable[[], bool], log: Callable[[str], None]) -> None:
        self._engine = engine
        self._write_metrics = write_metrics
        self._log = log
        self._woken = Event()
        self._ended = False
        self._thread = Thread(target=self._run, name="llm-watch", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Report a new sequence, or a new end."""
        self._woken.set()

    def close(self) -> None:
        """End the thread."""
        self._ended = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        look_at = metrics_at = 0.0
        stale = False
        while not self._ended:
            wait = _LOOK_S if self._engine.open else _METRICS_S if stale else None
            stale = self._woken.wait(wait) or stale
            self._woken.clear()
            now = time.monotonic()
            if now >= look_at:
                with self._engine.between_steps:
                    self._look(now)
                ended = time.monotonic()
                look_at = now + max(_LOOK_S, (ended - now) / _LOOK_SHARE)
            if stale and now >= metrics_at:
                metrics_at = now + _METRICS_S
                with self._engine.between_steps:
                    stale = self._metrics()

    def _look(self, now: float) -> None:
        for sequence in list(self._engine.open):
            reply: Reply = sequence.reply
            if reply.deadline is not None and now >= reply.deadline:
                self._engine.drop(sequence, Failure("UNAVAILABLE", "the request's timeout has expired", "deadline"))
            elif self._is_cancelled(reply):
                self._engine.drop(sequence, Failure("CANCELLED", "the caller has cancelled the request", "cancelled"))

    def _is_cancelled(self, reply: Reply) -> bool:
        try:
            return reply.is_cancelled()
        except Exception as error:
            self._log(f"whether a request was cancelled is unknown: {error!r}")
            return False

    def _metrics(self) -> bool:
        """Write the metrics, and return whether they still change."""
        busy = bool(self._engine.open)  # before: a sequence that ends meanwhile is written the next time
        try:
            return self._write_metrics() or busy
        except Exception as error:
            self._log(f"metrics could not be written: {error!r}")
            return False
