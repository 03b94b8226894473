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
from tritonkit.simulation.replica import simulate

__all__ = ["Observation", "calibrated", "misfit"]

_POINTS = (50, 75, 90, 95, 99)
_STEPS = (1.6, 1.25, 1.1, 1.04)
_FIRST_PER_ROUND = 3
_BOUND = 8.0
"""No factor is further from 1."""


@dataclass(frozen=True)
class Observation:
    """A real run at a constant rate, of the same way of serving.

    Args:
        moments: float64 [n], seconds when requests came, ascending.
        latency_s: float64 [n], what each took.
        choice: int64 [n], which of the costs' requests came each time; None: not known.
        skipped_s: how much of the beginning does not count, in which the machine still warms up.
    """

    moments: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    choice: NDArray[np.int64] | None = None
    skipped_s: float = 0.0


def calibrated(costs: Costs, batcher: Batcher, observations: Sequence[Observation]) -> Costs:
    """The costs with which the simulation comes closest to these runs."""
    if batcher.instances == 1:
        return _descended(costs, batcher, observations)
    # How instances share the cores is what single runs say least of: from both ends.
    starts = [replace(costs, contention=each) for each in (costs.contention, batcher.instances)]
    found = [_descended(start, batcher, observations) for start in starts]
    return min(found, key=lambda each: misfit(each, batcher, observations))


def _descended(costs: Costs, batcher: Batcher, observations: Sequence[Observation]) -> Costs:
    """One factor after the other, in steps that get smaller, as long as it gets better."""
    names = ["run", "item", "around", "spread"]
    if batcher.instances > 1:
        names.append("contention")
    factors = dict.fromkeys(names, 1.0)
    best = misfit(costs, batcher, observations)
    for step in _STEPS:
        for _ in range(_FIRST_PER_ROUND):
            before = best
            for name in names:
                for by in (step, 1 / step):
                    tried = factors | {name: factors[name] * by}
                    if not 1 / _BOUND <= tried[name] <= _BOUND:
                        continue
                    found = misfit(_scaled(costs, tried), batcher, observations)
                    if found < best:
                        best, factors = found, tried
                        break
            if best == before:
                break
    return _scaled(costs, factors)


def misfit(costs: Costs, batcher: Batcher, observations: Sequence[Observation]) -> float:
    """How far the simulated percentiles are from the real ones: the mean of the logarithms' squares."""
    total = 0.0
    for each in observations:
        found = simulate(each.moments, batcher, costs, choice=each.choice).latency_s
        counted = each.moments >= each.skipped_s
        ratios = np.percentile(found[counted], _POINTS) / np.percentile(
            each.latency_s[counted], _POINTS
        )
        total += float((np.log(np.maximum(ratios, 1e-9)) ** 2).mean())
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
