"""How callers are joined, as a user sets it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from tritonkit.errors import UsageError

__all__ = ["IN_FLIGHT", "Adaptive"]

IN_FLIGHT = 2
"""Batches under way at once unless set: one is computed while the other is collected and read."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Join concurrent calls of single items into batches; how long to wait follows the arrivals.

    Attributes:
        max_batch: items in one request; the model's max_batch_size holds as well.
        target_latency_ms: what a call may take, waiting included, while that is possible: the
            longest wait is this less the time that requests take of late, or a tenth of that
            time if this is more.
        min_wait_ms: a batch stays open this long if others were seen of late. Somebody who calls
            alone never waits.
        max_wait_ms: the longest that a batch stays open for others, in place of the one that
            follows from `target_latency_ms`.
        in_flight: batches of one kind under way at once; further callers wait and fill the next
            one. None: 2.

    Raises:
        UsageError: a value that cannot be meant.
    """

    max_batch: int = 64
    target_latency_ms: float = 10.0
    min_wait_ms: float = 0.0
    max_wait_ms: float | None = None
    in_flight: int | None = None

    def __post_init__(self) -> None:
        _check_count("max_batch", self.max_batch)
        if self.in_flight is not None:
            _check_count("in_flight", self.in_flight)
        _check_time("target_latency_ms", self.target_latency_ms)
        _check_time("min_wait_ms", self.min_wait_ms)
        if self.max_wait_ms is not None:
            _check_time("max_wait_ms", self.max_wait_ms)
            if self.max_wait_ms < self.min_wait_ms:
                raise UsageError(
                    "Adaptive, max_wait_ms",
                    found=f"{self.max_wait_ms:g}, less than min_wait_ms ({self.min_wait_ms:g})",
                    wanted="at least min_wait_ms",
                )


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"Adaptive, {name}", found=repr(value), wanted="a whole number from 1 up")


def _check_time(name: str, value: object) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not isfinite(value) or value < 0:  # type: ignore[arg-type,operator]
        raise UsageError(f"Adaptive, {name}", found=repr(value), wanted="milliseconds, 0 or more")
