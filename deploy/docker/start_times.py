"""Durations of a start's phases, for one line in the log."""

from __future__ import annotations

import time

__all__ = ["StartTimes"]


class StartTimes:
    """Points in time of one start, from `began` (by the monotonic clock) on."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._launched = self._verified = 0.0

    def launched(self) -> None:
        """Note that Triton was started."""
        self._launched = time.monotonic()

    def verified(self) -> None:
        """All files were compared with their manifests, while models were loading."""
        self._verified = time.monotonic()

    def line(self) -> str:
        """The message once every model answers."""
        now, launched = time.monotonic(), self._launched
        meanwhile = f"; verified meanwhile in {self._verified - launched:.2f} s" if self._verified else ""
        return (
            f"ready after {now - self._began:.2f} s: checked in {launched - self._began:.2f} s,"
            f" loaded and warmed in {now - launched:.2f} s{meanwhile}"
        )
