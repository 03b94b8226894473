"""Triton's dynamic batcher as a simulation: requests in, latencies out, thousands of requests in milliseconds.

One queue, instances that each run one batch at a time, and the batcher's rules (`dynamic_batching` in
Triton's model configuration): a batch leaves when an instance is free and it is as large as may be, or of a
preferred size, or its oldest request has waited `delay_s`. What happens between two departures needs no
event: a batch is formed from where the queue stands when an instance is free, so a run costs a few
operations for each batch, where a general simulator has several for each request.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batcher", "Costs", "Simulated", "fit", "highest_rate", "simulate"]


@dataclass(frozen=True)
class Batcher:
    """How one model is served.

    Args:
        instances: that run at the same time.
        max_batch_size: the largest batch; 1 or 0 without batching.
        preferred: sizes at which a batch leaves without waiting, ascending.
        delay_s: how long the oldest request may wait for others.
    """

    instances: int
    max_batch_size: int
    preferred: tuple[int, ...] = ()
    delay_s: float = 0.0


@dataclass(frozen=True)
class Costs:
    """Seconds that a run takes: `fixed_s`, and `item_s` for each item of mean weight; `around_s` is what a request
    spends outside the queue and the run (network, other steps). `spread` is the runs' coefficient of variation;
    `weights` are those of the requests that there are, such as the lengths of texts, beside their mean; `most_per_s`
    is what the whole machine does at most, whatever the batches (0: not known)."""

    fixed_s: float
    item_s: float
    around_s: float = 0.0
    spread: float = 0.1
    weights: tuple[float, ...] = ()
    most_per_s: float = 0.0

    def run_s(self, items: float) -> float:
        """A run of so many items."""
        return self.fixed_s + self.item_s * items

    def capacity(self, batcher: Batcher) -> float:
        """Requests a second with full batches: more than any rate that can be held."""
        items = max(1, batcher.max_batch_size)
        full_per_s = batcher.instances * items / self.run_s(items)
        return min(full_per_s, self.most_per_s or full_per_s)


@dataclass(frozen=True)
class Simulated:
    """What became of each request: float64 [n] seconds from its arrival to its answer, and the mean batch."""

    latency_s: NDArray[np.float64]
    batch: float
    busy: float
    """The share of the time that an instance was running, 0 to 1."""

    def percentile_ms(self, percent: float) -> float:
        """Of the latencies, by the nearest rank."""
        return float(1e3 * np.percentile(self.latency_s, percent, method="inverted_cdf"))


def simulate(
    moments: Sequence[float] | NDArray[np.float64],
    batcher: Batcher,
    costs: Costs,
    *,
    seed: int = 0,
) -> Simulated:
    """Serve these arrivals.

    Args:
        moments: seconds, ascending.
        seed: of the runs' spread, and of the requests' weights.
    """
    arrivals = np.asarray(moments, np.float64)
    count = len(arrivals)
    at = arrivals.tolist()
    ends = np.empty(count)
    rng = np.random.default_rng(seed)
    weights = rng.choice(costs.weights, count) if costs.weights else np.ones(count)
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    noise = _noise(costs.spread, count, rng)
    total = sums.tolist()
    free = [0.0] * batcher.instances
    most = max(1, batcher.max_batch_size)
    head = runs = 0
    busy_s = 0.0
    while head < count:
        ready = max(heapq.heappop(free), at[head])
        leaves, size = _next_batch(at, head, ready, most, batcher)
        run_s = costs.run_s(total[head + size] - total[head]) * noise[runs]
        heapq.heappush(free, leaves + run_s)
        ends[head : head + size] = leaves + run_s
        head += size
        runs += 1
        busy_s += run_s
    span_s = max(float(ends[-1] - arrivals[0]), 1e-9) if count else 1.0
    return Simulated(
        ends - arrivals + costs.around_s, count / max(runs, 1),
        busy_s / span_s / batcher.instances,
    )  # fmt: skip


def _next_batch(
    at: Sequence[float], head: int, ready: float, most: int, batcher: Batcher
) -> tuple[float, int]:
    """When the next batch leaves and how large it is, with an instance free from `ready` on."""
    waiting = bisect_right(at, ready, head, min(head + most, len(at))) - head
    best = _preferred(batcher.preferred, waiting)
    if waiting >= most or best:
        return ready, best if best and waiting < most else most
    until = at[head] + batcher.delay_s
    if until <= ready:
        return ready, waiting
    # It waits for the next size at which it may leave, or for its oldest request's time.
    wanted = min([size for size in batcher.preferred if size > waiting] or [most])
    if head + wanted <= len(at) and at[head + wanted - 1] <= until:
        return at[head + wanted - 1], wanted
    return until, bisect_right(at, until, head, min(head + most, len(at))) - head


def _preferred(sizes: tuple[int, ...], waiting: int) -> int:
    """The largest preferred size that can be filled; 0 where there is none."""
    return max((size for size in sizes if size <= waiting), default=0)


def _noise(spread: float, count: int, rng: np.random.Generator) -> list[float]:
    """Factors with mean 1 and this coefficient of variation, of a gamma distribution."""
    if spread <= 0:
        return [1.0] * count
    shape = 1 / spread**2
    drawn: list[float] = rng.gamma(shape, 1 / shape, count).tolist()
    return drawn


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """`fixed_s` and `item_s` of runs that were measured, neither below 0, by least squares of the relative error."""
    items, taken = np.asarray(sizes, np.float64), np.asarray(seconds, np.float64)
    if len(np.unique(items)) < 2:
        return 0.0, float((taken / items).mean())
    rows = np.stack([1 / taken, items / taken], axis=1)
    fixed, item = np.linalg.lstsq(rows, np.ones(len(items)), rcond=None)[0]
    if fixed < 0:
        return 0.0, float((items / taken).sum() / ((items / taken) ** 2).sum())
    if item <= 0:
        return float((1 / taken).sum() / (1 / taken**2).sum()), 1e-9
    return float(fixed), float(item)


def highest_rate(
    batcher: Batcher,
    costs: Costs,
    percent: float,
    target_ms: float,
    arrivals: Callable[[float, float], NDArray[np.float64]],
    *,
    at_least: float = 0.0,
    requests: int = 2000,
    precision: float = 0.03,
) -> float:
    """The highest rate at which this percentile of the latency stays within the target; 0 where none from
    `at_least` on does.

    Args:
        arrivals: makes moments at a rate for so many seconds.
        requests: simulated at each rate. precision: the relative width of what is left.
    """

    def holds(rate: float) -> bool:
        moments = arrivals(rate, requests / rate)
        if not len(moments):
            return True
        return simulate(moments, batcher, costs).percentile_ms(percent) <= target_ms

    low, high = 0.0, costs.capacity(batcher)
    if at_least >= high or (at_least and not holds(at_least)):
        return 0.0
    low = at_least
    if holds(high):
        return high
    least = high / 256
    while high > least and (not low or high / low > 1 + precision):
        middle = (low * high) ** 0.5 if low else high / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
