"""Times in buckets that grow with the time: small to keep, to send and to add up, at 1 % resolution.

It works as HdrHistogram (https://hdrhistogram.org), with a logarithm instead of bit tricks. Locust's own
counters round to whole milliseconds, and above 100 ms to tens: too coarse for answers of 2 ms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["Histogram"]

_STEP = math.log(1.01)
_FLOOR_MS = 0.001


class Histogram:
    """Counts of times in ms; bucket k holds 1.01**k up to 1.01**(k + 1) microseconds."""

    def __init__(self, counts: Iterable[tuple[int, int]] = (), largest_ms: float = 0.0) -> None:
        self._counts: dict[int, int] = dict(counts)
        self.largest_ms = largest_ms

    def add(self, ms: float) -> None:
        """Count one time; all below a microsecond are one microsecond."""
        bucket = int(math.log(max(ms, _FLOOR_MS) / _FLOOR_MS) / _STEP)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.largest_ms = max(self.largest_ms, ms)

    @classmethod
    def of(cls, times_ms: NDArray[np.float64]) -> Histogram:
        """Count all of these times, float64 [n]."""
        if not len(times_ms):
            return cls()
        micro = np.maximum(times_ms, _FLOOR_MS) / _FLOOR_MS
        buckets, counts = np.unique((np.log(micro) / _STEP).astype(np.int64), return_counts=True)
        pairs = zip(buckets.tolist(), counts.tolist(), strict=True)
        return cls(pairs, float(times_ms.max()))

    def merge(self, other: Histogram) -> None:
        """Count what another histogram counted, too."""
        for bucket, count in other.counts():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.largest_ms = max(self.largest_ms, other.largest_ms)

    def counts(self) -> list[tuple[int, int]]:
        """Bucket and count, smallest times first; what the constructor takes."""
        return sorted(self._counts.items())

    def edges(self) -> list[tuple[float, float, int]]:
        """Lower and upper edge in ms of each bucket that is not empty, and its count."""
        return [
            (_FLOOR_MS * math.exp(k * _STEP), _FLOOR_MS * math.exp((k + 1) * _STEP), count)
            for k, count in self.counts()
        ]

    def __len__(self) -> int:
        """The number of counted times."""
        return sum(self._counts.values())

    def percentile(self, percent: float) -> float | None:
        """The time in ms that `percent` of all times do not exceed (nearest rank), within 0.5 %.

        None when nothing was counted.
        """
        left = max(1, math.ceil(percent / 100 * len(self)))
        for bucket, count in self.counts():
            left -= count
            if left <= 0:
                middle = _FLOOR_MS * math.exp((bucket + 0.5) * _STEP)
                return min(middle, self.largest_ms)
        return None
