"""The time for which a batch stays open, from recent arrivals and the duration of requests.

There is no clock and no lock here: the batcher passes the moments and holds its lock meanwhile.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tritonkit.client.batching.settings import IN_FLIGHT

if TYPE_CHECKING:
    from tritonkit.client.batching.settings import Adaptive

__all__ = ["BatchWindow"]

_WEIGHT = 1 / 8  # of the newest observation in a moving average
_SILENT_GAPS = 4  # after this many mean gaps without an arrival no more are expected (1 in 50 if they are random)
_PAUSE = 1.1  # of the largest gap worth waiting for: one beyond it counts as this much
_LEAST_SILENCE_S = 0.0002  # a thread cannot be woken much more precisely
_TENTH = 0.1  # of a request's time, where the target leaves none to wait


class BatchWindow:
    """The batcher's observations: gaps between arrivals, the time of a request, concurrent callers."""

    def __init__(self, settings: Adaptive, limit: int) -> None:
        self.limit = limit
        self.in_flight = settings.in_flight or IN_FLIGHT
        self._target_s = settings.target_latency_ms / 1e3
        self._least_s = settings.min_wait_ms / 1e3
        self._most_s = None if settings.max_wait_ms is None else settings.max_wait_ms / 1e3
        self.gap_s = inf  # mean time between two arrivals
        self.service_s = 0.0  # mean time of a request
        self.longest_s = self._longest_s()  # a batch stays open no longer
        # With longer gaps, requests are done sooner than the next caller comes: no use in waiting.
        self._useful_s = self.longest_s
        self.arrived_at = -inf
        self._moved_at = -inf  # the last arrival or landing
        self._free_at = -inf  # the last landing before which no further batch could leave
        self._peak = 0  # most concurrent items, queued or under way, in this round of landings
        self._peak_before = 0  # and in the round before
        self._landings = 0

    @property
    def recent_callers(self) -> int:
        """The most concurrent callers in the last landings."""
        return max(self._peak, self._peak_before)

    @property
    def share(self) -> int:
        """The size at which a batch need not wait: the callers, spread over the batches under way."""
        return min(self.limit, -(-self.recent_callers // self.in_flight))

    def arrived(self, now: float, present: int) -> None:
        """An item came; `present` items are queued or under way, it included."""
        # A pause does not say how fast calls come now: it must not last in the mean.
        gap, longest, mean_s = now - self.arrived_at, _PAUSE * self._useful_s, self.gap_s
        if gap > longest:
            gap = longest
        self.gap_s = gap if mean_s == inf else mean_s + (gap - mean_s) * _WEIGHT
        self.arrived_at = self._moved_at = now
        if present > self._peak:
            self._peak = present

    def landed(self, now: float, took_s: float | None, present: int, flying: int) -> None:
        """A batch came back, `flying` still fly; `took_s` is None if it was not answered."""
        if took_s is not None:
            mean_s = self.service_s or took_s
            self.service_s = mean_s + (took_s - mean_s) * _WEIGHT
            self.longest_s = self._longest_s()
            self._useful_s = min(self.longest_s, self.service_s)
            self.gap_s = min(self.gap_s, _PAUSE * self._useful_s)
        self._moved_at = now
        if flying == self.in_flight - 1:
            self._free_at = now
        self._landings += 1
        if self._landings >= 2 * self.in_flight:
            self._landings = 0
            self._peak_before, self._peak = self._peak, present

    def hold_s(self, now: float, queued: int, present: int, joined: float, soonest: float) -> float:
        """Further seconds that a batch of `queued` items should stay open; 0 or less: send it.

        `present` items are in it or under way; its first came at `joined`, its earliest deadline is `soonest`.
        """
        if queued >= self.limit or self.recent_callers <= 1:
            return 0.0
        least = joined + self._least_s
        end = least
        if queued < self.share and present < self.recent_callers and self.gap_s <= self._useful_s:
            end = max(joined, self._free_at) + self.longest_s
            if present == queued:  # the server is idle: only for those who are on their way
                end = max(least, min(end, self._moved_at + self._silence_s()))
        end = min(end, soonest - self.service_s)
        if end <= now and queued < self.share and present == queued:
            self._peak = self._peak_before = present  # they did not come in time: they are gone
        return end - now

    def _longest_s(self) -> float:
        if self._most_s is not None:
            return self._most_s
        spare = max(self._target_s - self.service_s, _TENTH * self.service_s)
        return max(spare, self._least_s)

    def _silence_s(self) -> float:
        """Seconds without an arrival or a landing after which no caller is expected."""
        return max(min(_SILENT_GAPS * self.gap_s, self.service_s / 2), _LEAST_SILENCE_S)
