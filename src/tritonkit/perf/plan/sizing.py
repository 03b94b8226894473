"""The number of replicas that hold a target at a rate, by simulation of the fleet."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonkit.perf.load.openloop import Arrivals, Slo, draw
from tritonkit.perf.simulation import Balancing, Costs, Simulated, SimulatedBatcher, simulate_alone, simulate_fleet

__all__ = ["Curve", "Fleet", "FleetRun", "Sized", "alone", "curve", "size"]

_REQUESTS = 20_000
"""Simulated requests for each number of replicas: the 99th percentile then rests on 200 requests."""
_MOST_SIMULATED = 16
"""The most simulated replicas; of a larger fleet only these are simulated, each with its share of the rate."""
_CURVE_REPLICAS, _CURVE_REQUESTS = 8, 10_000
_SHARES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
"""Shares of a replica's capacity at which a curve is simulated."""
_SKIPPED = 0.05
"""The first part of a simulation, in which queues still fill."""
_MOST_REPLICAS = 1_000_000
_GRID = 2000
"""Rates at which a curve is looked up."""


@dataclass(frozen=True)
class Fleet:
    """Replicas of one kind, and the arrivals of their requests.

    Args:
        batcher, costs: the batcher settings and costs of each replica.
        balancing: the way in which requests are spread.
        arrivals: the arrival process; the rate is constant.
        trusted: the share that a server was seen to reach of the capacity computed from the costs, 0 to 1.
    """

    batcher: SimulatedBatcher
    costs: Costs
    balancing: Balancing = "least_request"
    arrivals: Arrivals = field(default_factory=Arrivals)
    trusted: float = 1.0

    @cached_property
    def capacity(self) -> float:
        """The highest rate of one replica, with full batches."""
        return self.trusted * self.costs.capacity(self.batcher)

    def simulate(self, rate_per_s: float, replicas: int, requests: int = _REQUESTS) -> FleetRun:
        """Simulate a number of replicas at a rate, or some of them at their share of it."""
        stand = min(replicas, _MOST_SIMULATED)
        rate = rate_per_s * stand / replicas
        moments = draw(self.arrivals, rate, requests / rate)
        return FleetRun.of(simulate_fleet(moments, self.batcher, self.costs, stand, self.balancing), moments)


@dataclass(frozen=True)
class FleetRun:
    """Latencies of the requests of a simulation.

    Args:
        latency_s: float64 [n], ascending.
        batch: mean size. busy: share of the instances' time, 0 to 1.
    """

    latency_s: NDArray[np.float64]
    batch: float
    busy: float
    rate_per_s: float

    @classmethod
    def of(cls, simulated: Simulated, moments: NDArray[np.float64]) -> FleetRun:
        """The run without its first part, in which queues still fill."""
        first = int(_SKIPPED * len(moments))
        span_s = max(float(moments[-1]), 1e-9) if len(moments) else 1.0
        return cls(np.sort(simulated.latency_s[first:]), simulated.batch, simulated.busy, len(moments) / span_s)

    def at(self, percent: float) -> float:
        """A percentile in milliseconds, by the nearest rank."""
        rank = max(0, math.ceil(len(self.latency_s) * percent / 100 - 1e-9) - 1)
        return float(1e3 * self.latency_s[rank]) if len(self.latency_s) else 0.0

    def late(self, ms: float) -> float:
        """The share of requests above a latency in milliseconds."""
        count = len(self.latency_s)
        return 1 - bisect_left(self.latency_s, ms / 1e3 + 1e-12) / count if count else 0.0

    def holds(self, slo: Slo, times: float = 1.0) -> bool:
        """Whether all percentiles are within their targets times a factor."""
        return all(self.at(percent) <= ms * times for percent, ms in slo.percentiles.items())


@dataclass(frozen=True)
class Sized:
    """The number of replicas that hold a target.

    Args:
        replicas: the smallest number.
        tails_ms: percent -> milliseconds, with this number.
        busy: share of the instances' time, 0 to 1. batch: mean size.
    """

    replicas: int
    tails_ms: Mapping[float, float]
    busy: float
    batch: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "replicas": self.replicas,
            "busy": self.busy,
            "batch": self.batch,
            "tails_ms": {f"p{percent:g}": ms for percent, ms in self.tails_ms.items()},
        }


def size(fleet: Fleet, rate_per_s: float, slo: Slo, *, near: int = 0, requests: int = _REQUESTS) -> Sized | None:
    """The smallest number of replicas that hold the target at this rate; None if no number does.

    With more replicas each has less to do and none is slower, so a bisection finds the fewest.

    Args:
        near: a number to begin with, if one is known.
        requests: simulated with each number.
    """
    runs: dict[int, FleetRun] = {}

    def holds(replicas: int) -> bool:
        runs[replicas] = fleet.simulate(rate_per_s, replicas, requests)
        return runs[replicas].holds(slo)

    if not alone(fleet).holds(slo):
        return None
    low = max(0, math.ceil(rate_per_s / fleet.capacity) - 1)  # surely too few
    high, step = max(low + 1, near), 1
    while not holds(high):
        low, high, step = high, min(high + max(step, high // 8), _MOST_REPLICAS), 2 * step
        if low == high:
            return None
    step = 1
    while high - low > 1:
        middle = max(high - step, (low + high) // 2) if near else (low + high) // 2
        if holds(middle):
            high, step = middle, 2 * step
        else:
            low = middle
    run = runs[high]
    tails = {percent: run.at(percent) for percent in slo.percentiles}
    return Sized(high, tails, run.busy, run.batch)


def alone(fleet: Fleet) -> FleetRun:
    """The run of requests that wait for no other; no number of replicas can be faster."""
    simulated = simulate_alone(fleet.batcher, fleet.costs)
    return FleetRun(np.sort(simulated.latency_s), simulated.batch, simulated.busy, 0.0)


@dataclass(frozen=True)
class Curve:
    """One replica of a fleet at several shares of its capacity.

    Args:
        rates_per_s: rates of one replica, ascending.
        outcomes: the outcome at each rate.
    """

    rates_per_s: tuple[float, ...]
    outcomes: tuple[FleetRun, ...]

    def highest_rate(self, slo: Slo, times: float = 1.0) -> float:
        """The highest rate of a replica within the target times a factor, interpolated between simulated rates by the
        latency that is furthest off; 0 if there is none."""
        highest = 0.0
        for at, (rate, outcome) in enumerate(zip(self.rates_per_s, self.outcomes, strict=True)):
            if outcome.holds(slo, times):
                highest = rate
                continue
            if at == 0:
                return 0.0
            before = self.outcomes[at - 1]
            shares = [
                (ms * times - before.at(p)) / max(outcome.at(p) - before.at(p), 1e-9)
                for p, ms in slo.percentiles.items()
                if outcome.at(p) > ms * times
            ]
            return highest + min(shares) * (rate - highest)
        return highest

    def reader(self, percent: float, ms: float) -> Callable[[float], tuple[float, float, float]]:
        """The state of a replica at any rate: a percentile in milliseconds, the share of requests above `ms`, and its
        busy share, 0 to 1."""
        states = [(o.at(percent), o.late(ms), o.busy) for o in self.outcomes]
        grid = np.linspace(0.0, self.rates_per_s[-1], _GRID + 1)
        columns = [np.interp(grid, self.rates_per_s, column) for column in zip(*states, strict=True)]
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        each_per_s = self.rates_per_s[-1] / _GRID

        def read(rate_per_s: float) -> tuple[float, float, float]:
            tail, late, busy = rows[min(_GRID, int(rate_per_s / each_per_s + 0.5))]
            return tail, late, busy

        return read


def curve(fleet: Fleet) -> Curve:
    """Simulate one replica in a fleet of several, from a low rate up to its capacity."""
    rates = tuple(share * fleet.capacity for share in _SHARES)
    return Curve(
        rates, tuple(fleet.simulate(rate * _CURVE_REPLICAS, _CURVE_REPLICAS, _CURVE_REQUESTS) for rate in rates)
    )
