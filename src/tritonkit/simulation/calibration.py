"""Costs held against open-loop runs: what differs is put down to the costs, a few factors all in all.

What is measured of runs one by one misses how they get in each other's way on one machine: the steps around
the network, the server's own threads, caches. So the simulation is given the same arrivals as real runs had, and
factors of the costs are searched with which its latencies come out as theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tritonkit.simulation.batcher import Batcher
from tritonkit.simulation.costs import Costs
from tritonkit.simulation.fleet import simulate_fleet

__all__ = ["Observation", "calibrated", "misfit"]

_POINTS = (50, 75, 90, 95, 99)
_WEIGHTS = (1.0, 1.0, 1.0, 0.7, 0.4)
"""Of these percentiles: the higher, the more is chance in them."""
_STEPS = (1.6, 1.25, 1.1, 1.04)
_FIRST_PER_ROUND = 3
_MOST = 3000
"""Requests of each run that are simulated."""
_BOUND = 8.0
"""No factor is further from 1."""


@dataclass(frozen=True)
class Observation:
    """A real run at a constant rate, of the same way of serving.

    Args:
        moments: float64 [n], seconds when requests came, ascending.
        latency_s: float64 [n], what each took.
        choice: int64 [n], which of the costs' requests came each time; None: not known.
    """

    moments: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    choice: NDArray[np.int64] | None = None

    def first(self, count: int) -> Observation:
        """So many of its requests, from the start."""
        choice = None if self.choice is None else self.choice[:count]
        return Observation(self.moments[:count], self.latency_s[:count], choice)


def calibrated(
    costs: Costs, batcher: Batcher, observations: Sequence[Observation], replicas: int = 1
) -> Costs:
    """The costs with which the simulation comes closest to these runs, of so many servers that got requests in
    turn."""
    observations = [each.first(_MOST) for each in observations]
    if batcher.instances == 1:
        return _descended(costs, batcher, observations, replicas)
    # How instances share the cores is what single runs say least of: from both ends.
    starts = [replace(costs, contention=each) for each in (costs.contention, batcher.instances)]
    found = [_descended(start, batcher, observations, replicas) for start in starts]
    return min(found, key=lambda each: misfit(each, batcher, observations, replicas))


def _descended(
    costs: Costs, batcher: Batcher, observations: Sequence[Observation], replicas: int
) -> Costs:
    """One factor after the other, in steps that get smaller, as long as it gets better."""
    names = ["run", "item", "around", "spread"]
    if batcher.instances > 1:
        names.append("contention")
    factors = dict.fromkeys(names, 1.0)
    best = misfit(costs, batcher, observations, replicas)
    for step in _STEPS:
        for _ in range(_FIRST_PER_ROUND):
            before = best
            for name in names:
                for by in (step, 1 / step):
                    tried = factors | {name: factors[name] * by}
                    if not 1 / _BOUND <= tried[name] <= _BOUND:
                        continue
                    found = misfit(_scaled(costs, tried), batcher, observations, replicas)
                    if found < best:
                        best, factors = found, tried
                        break
            if best == before:
                break
    return _scaled(costs, factors)


def misfit(
    costs: Costs, batcher: Batcher, observations: Sequence[Observation], replicas: int = 1
) -> float:
    """How far the simulated percentiles are from the real ones: the mean of the logarithms' squares."""
    total = 0.0
    for each in observations:
        found = simulate_fleet(
            each.moments, batcher, costs, replicas, "round_robin", choice=each.choice
        ).latency_s
        ratios = np.percentile(found, _POINTS) / np.percentile(each.latency_s, _POINTS)
        total += float(np.average(np.log(np.maximum(ratios, 1e-9)) ** 2, weights=_WEIGHTS))
    return total / max(1, len(observations))


def _scaled(costs: Costs, factors: dict[str, float]) -> Costs:
    run = factors["run"]
    contention = costs.contention
    if "contention" in factors:
        contention = max(1.0, contention * factors["contention"])
    spread, drawn = costs.spread * factors["spread"], ()
    if costs.factors:
        powers = np.array(costs.factors) ** factors["spread"]
        drawn = tuple((powers / powers.mean()).tolist())
    return replace(
        costs,
        fixed_s=costs.fixed_s * run,
        item_s=costs.item_s * run * factors["item"],
        around_s=costs.around_s * factors["around"],
        contention=contention,
        spread=spread,
        factors=drawn,
    )
