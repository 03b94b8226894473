"""A user's settings for joining calls into batches."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tritonkit.client.checks import check_setting, is_whole

__all__ = ["IN_FLIGHT", "Adaptive"]

IN_FLIGHT = 2
"""Default number of concurrent batches: one is computed while the other is collected and read."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Join concurrent calls of single items into batches; how long to wait follows the arrivals.

    Attributes:
        max_batch: most items in one request; the model's max_batch_size holds as well.
        target_latency_ms: the time a call may take, waiting included, while that is possible. The
            longest wait is this less the mean time of recent requests, or a tenth of that
            mean if this is more.
        min_wait_ms: a batch stays open this long if there were other recent callers. A single
            caller never waits.
        max_wait_ms: the longest that a batch stays open for others; it replaces the limit
            that follows from `target_latency_ms`.
        in_flight: concurrent batches of one kind; further callers wait and fill the next
            one. None: 2.
        independent_items: whether you know that no called model lets an item's answer depend on the other items of
            its request. False: the model's configuration decides, else a check with real items.

    Raises:
        UsageError: a value is out of range.
    """

    max_batch: int = 64
    target_latency_ms: float = 10.0
    min_wait_ms: float = 0.0
    max_wait_ms: float | None = None
    in_flight: int | None = None
    independent_items: bool = False

    def __post_init__(self) -> None:
        for name in ("max_batch", "in_flight"):
            value = getattr(self, name)
            fine = is_whole(value, 1) or (name == "in_flight" and value is None)
            check_setting(self, name, fine, "a whole number from 1")
        for name in ("target_latency_ms", "min_wait_ms", "max_wait_ms"):
            value = getattr(self, name)
            fine = type(value) in (int, float) and 0 <= value < inf
            fine = fine or (name == "max_wait_ms" and value is None)
            check_setting(self, name, fine, "milliseconds, 0 or more")
        fine = type(self.independent_items) is bool
        check_setting(self, "independent_items", fine, "True or False")
        if self.max_wait_ms is not None:
            fine = self.max_wait_ms >= self.min_wait_ms
            check_setting(self, "max_wait_ms", fine, f"at least min_wait_ms ({self.min_wait_ms:g})")
