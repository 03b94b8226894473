"""The choice between a network compiled for one batch size and one for any size, by measured time.

A model measures when it loads, in about a second, on zeros. The network of any size and those of one size run the same
batches in turn, so that the former pays for its changes of shape as it would when serving. Seen: for a small
convolutional network on 2 cores the fixed sizes took two thirds of the time; for ResNet-50 both took the same on these
cores, and 1.7 times as long on another processor.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WORTH = 0.95  # share of the free form's time below which a fixed form is kept, because it holds weights too
ROUNDS = 5
LONGEST_S = 0.25  # runs expected to take longer are judged by the next smaller size
BUDGET_S = 1.0


@dataclass(frozen=True)
class Choice:
    """Seconds that batches took: `free` in the form of any size, `fixed` in that of their own.

    `free` has every size that was tried, `fixed` those whose form is kept.
    """

    free: Mapping[int, float] = field(default_factory=dict)
    fixed: Mapping[int, float] = field(default_factory=dict)

    def __str__(self) -> str:
        gains = (f"{size} ({self.free[size] / s:.1f} times as fast)" for size, s in self.fixed.items())
        return f"compiled for batches of {', '.join(gains) or 'any size alone'}"

    def size_for(self, count: int) -> int | None:
        """The compiled size to which a batch of `count` is padded; None: it goes through the free form."""
        size = min((size for size in self.fixed if size >= count), default=None)
        if size is None or self.fixed[size] > self._free_s(count):
            return None
        return size

    def _free_s(self, count: int) -> float:
        """Seconds in the free form, on the line between the nearest sizes that were tried."""
        sizes = sorted(self.free)
        above = min(bisect_left(sizes, count), len(sizes) - 1)
        high, low = sizes[above], sizes[max(above - 1, 0)]
        if high == low:
            return self.free[high]
        slope = (self.free[high] - self.free[low]) / (high - low)
        return self.free[low] + slope * (count - low)


def measure(
    sizes: Sequence[int],
    free: Callable[[int], None],
    fixed: Callable[[int], None],
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """Time of each size in a form of its own; `free` and `fixed` run a batch of a size, and `clock` gives seconds."""

    def seconds(run: Callable[[int], None], size: int) -> float:
        start = clock()
        run(size)
        return clock() - start

    free_s: dict[int, float] = {}
    fixed_s: dict[int, float] = {}
    for size in sizes:
        if free_s and _expected(free_s, size) > LONGEST_S:
            break
        free(size)  # this run finds kernels and memory for the shape
        fixed(size)  # this run compiles the form
        free_s[size], fixed_s[size] = seconds(free, size), seconds(fixed, size)
    tried, deadline = tuple(free_s), clock() + BUDGET_S
    for _ in range(ROUNDS):
        for size in tried:
            free_s[size] = min(free_s[size], seconds(free, size))
            fixed_s[size] = min(fixed_s[size], seconds(fixed, size))
        if clock() > deadline:
            break
    for size in sizes[len(tried) :]:
        free_s[size], fixed_s[size] = _expected(free_s, size), _expected(fixed_s, size)
    return Choice(free_s, {size: s for size, s in fixed_s.items() if s < WORTH * free_s[size]})


def _expected(seconds: Mapping[int, float], size: int) -> float:
    """Expected seconds, at the time per item of the largest size before it."""
    largest = max(seconds)
    return seconds[largest] * size / largest
