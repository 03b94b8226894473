"""One server of a model as a simulation: requests in, latencies out, some hundred thousand requests in a second.

One queue, instances that each run one batch at a time, and the batcher's rules. Nothing between two departures needs an
event: a batch is formed from the queue's place when an instance is free. So a run costs a few operations for each
batch, where a general simulator has several for each request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritonkit.perf.simulation.batcher import SimulatedBatcher, next_batch
from tritonkit.perf.simulation.costs import Costs

__all__ = ["NEVER", "Requests", "Simulated", "SimulatedReplica", "highest_rate", "simulate", "simulate_alone"]

NEVER = float("inf")


@dataclass(frozen=True)
class Simulated:
    """Results of a simulation: float64 [n] seconds from each arrival to its answer, and the mean batch."""

    latency_s: NDArray[np.float64]
    batch: float
    busy: float
    """The share of the time that an instance was running, 0 to 1."""

    def percentile_ms(self, percent: float) -> float:
        """A percentile of the latencies, by the nearest rank."""
        return float(1e3 * np.percentile(self.latency_s, percent, method="inverted_cdf"))


class Requests:
    """The requests of a simulation: their properties, and when each was answered."""

    def __init__(self, costs: Costs, weights: Sequence[float], shapes: Sequence[int], factors: Sequence[float]) -> None:
        self.costs, self.weights, self.shapes, self.factors = costs, weights, shapes, factors
        self.ends = [0.0] * len(weights)
        self.runs = 0
        self.busy_s = 0.0

    @classmethod
    def drawn(
        cls, costs: Costs, count: int, rng: np.random.Generator, choice: NDArray[np.int64] | None = None
    ) -> Requests:
        """Random requests, or the chosen ones."""
        weights, shapes, factors = costs.draw(count, rng, choice)
        return cls(costs, weights.tolist(), shapes, factors.tolist())

    def simulated(self, arrivals: NDArray[np.float64], instances: int, around_s: float) -> Simulated:
        """The result after all have been answered."""
        count, ends = len(arrivals), np.array(self.ends)
        span_s = max(float(ends.max() - arrivals[0]), 1e-9) if count else 1.0
        return Simulated(ends - arrivals + around_s, count / max(self.runs, 1), self.busy_s / span_s / instances)


class SimulatedReplica:
    """One server at a moment that only moves forward.

    Args:
        batcher: the batcher's settings.
        requests: the requests of the simulation.
    """

    def __init__(self, batcher: SimulatedBatcher, requests: Requests) -> None:
        self._batcher, self._requests = batcher, requests
        count = batcher.instances
        self._speeds = [requests.costs.speed(k, count) for k in range(count + 1)]
        self._at: list[float] = []
        self._shapes: list[int] = []
        self._sent: list[int] = []
        self._head = 0
        self._running: list[tuple[float, float, int, int]] = []
        """Each run: the work done at its end, its begin, and the places of its requests in `_sent`."""
        self._work = 0.0
        """Work done so far by every run, in seconds of a run alone."""
        self._now = 0.0
        self.under_way = 0
        self.down_until = 0.0

    def send(self, request: int, now: float) -> None:
        """Take in a request."""
        self._at.append(max(now, self.down_until))
        if self._requests.shapes:
            self._shapes.append(self._requests.shapes[request])
        self._sent.append(request)
        self.under_way += 1

    def advance(self, until: float) -> None:
        """Process all events up to a moment; no later call may add a request before it."""
        running, at, speeds = self._running, self._at, self._speeds
        instances, count = self._batcher.instances, len(self._at)
        while True:
            busy = len(running)
            ends_at = self._now + (running[0][0] - self._work) / speeds[busy] if busy else NEVER
            leaves_at, size = NEVER, 0
            if busy < instances and self._head < count:
                ready = at[self._head] if at[self._head] > self._now else self._now
                if ready < ends_at:
                    leaves_at, size = next_batch(at, self._shapes, self._head, ready, self._batcher)
            now = ends_at if ends_at <= leaves_at else leaves_at
            if now > until or now == NEVER:
                return
            if busy:
                self._work += (now - self._now) * speeds[busy]
            self._now = now
            if size and leaves_at < ends_at:
                self._begin(now, size)
            else:
                self._end(now)

    def take_down(self, now: float, until: float) -> list[int]:
        """Lose all requests; it comes back empty."""
        self.advance(now)
        lost = [r for _, _, first, last in self._running for r in self._sent[first:last]]
        self._requests.busy_s += sum(now - began for _, began, _, _ in self._running)
        lost += self._sent[self._head :]
        self._head = len(self._at)
        self._running.clear()
        self.under_way, self._now, self.down_until = 0, until, until
        return lost

    def _begin(self, now: float, size: int) -> None:
        requests, first = self._requests, self._head
        last = first + size
        weights = requests.weights
        if size == 1:
            items = weights[self._sent[first]]
        else:
            items = sum([weights[request] for request in self._sent[first:last]])
        factor = requests.factors[requests.runs % len(requests.factors)]
        work = self._work + requests.costs.run_s(items) * factor
        self._running.append((work, now, first, last))
        if len(self._running) > 1:
            self._running.sort()
        self._head = last
        requests.runs += 1

    def _end(self, now: float) -> None:
        _, began, first, last = self._running.pop(0)
        self._requests.busy_s += now - began
        ends = self._requests.ends
        for request in self._sent[first:last]:
            ends[request] = now
        self.under_way -= last - first


def simulate(
    moments: Sequence[float] | NDArray[np.float64],
    batcher: SimulatedBatcher,
    costs: Costs,
    *,
    seed: int = 0,
    choice: NDArray[np.int64] | None = None,
) -> Simulated:
    """Serve these arrivals.

    Args:
        moments: seconds, ascending.
        seed: the seed of the runs' factors and of the choice of requests.
        choice: int64 [n]: the index in `costs.weights` of each request, instead of a random one.
    """
    arrivals = np.asarray(moments, np.float64)
    rng = np.random.default_rng(seed)
    requests = Requests.drawn(costs, len(arrivals), rng, choice)
    replica = SimulatedReplica(batcher, requests)
    for request, now in enumerate(arrivals.tolist()):
        replica.send(request, now)
    replica.advance(NEVER)
    return requests.simulated(arrivals, batcher.instances, costs.around_s)


def simulate_alone(batcher: SimulatedBatcher, costs: Costs, requests: int = 2000) -> Simulated:
    """Requests so far apart that none waits for another: no load on this way of serving is faster."""
    apart_s = 10 * (costs.run_s(max(costs.weights, default=1.0)) + batcher.delay_s)
    return simulate(np.arange(1.0, requests + 1) * apart_s, batcher, costs)


def highest_rate(
    batcher: SimulatedBatcher,
    costs: Costs,
    percent: float,
    target_ms: float,
    arrivals: Callable[[float, float], NDArray[np.float64]],
    *,
    at_least: float = 0.0,
    requests: int = 2000,
    precision: float = 0.03,
) -> float:
    """The highest rate at which this percentile of the latency stays within the target; 0 if no rate from `at_least`
    on does.

    Args:
        arrivals: makes moments for a rate and a number of seconds.
        requests: simulated at each rate. precision: the relative width of the remaining interval.
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
