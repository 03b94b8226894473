"""Costs held against open-loop runs: what differs is put down to the costs, a few factors all in all.

What is measured of runs one by one misses how they get in each other's way on one machine: the steps around
the network, the server's own threads, caches. So the simulation is given the same arrivals as real runs had, and
factors of the costs are searched with which its latencies come out as theirs, by the simplex method of Nelder and
Mead (1965), which wants no derivatives: a simulation is not smooth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tritonkit.extras import need_package
from tritonkit.perf.simulation.batcher import SimulatedBatcher
from tritonkit.perf.simulation.costs import Costs
from tritonkit.perf.simulation.fleet import simulate_fleet

__all__ = ["ObservedRun", "calibrated", "misfit"]

_POINTS = (10, 25, 50, 75, 90, 95, 99)
_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5)
"""Of these percentiles: the highest has the most chance in it."""
_MOST = 4000
"""Requests of each run that are simulated."""
_STRETCHES = 4
"""Of each turn: its first moment alone may be one in which the machine was slow."""
_TRIED = 250
"""Simulations of all runs, from each start."""
_FIRST = 0.3
"""How far the first ones are from what was measured, as a logarithm."""
_NEARER = 1e-3
"""What a factor of e costs in misfit: what the runs do not show stays as it was measured."""
_BOUND = 8.0
"""No factor is further from 1."""


@dataclass(frozen=True)
class ObservedRun:
    """A real run at a constant rate, of the same way of serving.

    Args:
        moments: float64 [n], seconds when requests came, ascending.
        latency_s: float64 [n], what each took.
        choice: int64 [n], which of the costs' requests came each time; None: not known.
        turn: int64 [n], in which stretch of the run each came, from 0, with a pause between two; None: there is one.
    """

    moments: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    choice: NDArray[np.int64] | None = None
    turn: NDArray[np.int64] | None = None

    def part(self, count: int) -> ObservedRun:
        """About so many of its requests, as stretches from all over each turn, which are turns of their own; all of
        it where there are no more.
        """
        if len(self.moments) <= count:
            return self
        length = max(1, count // (len(self.turns) * _STRETCHES))
        keep = [each for turn in self.turns for each in _stretches(turn, length)]
        index = np.concatenate(keep)
        return ObservedRun(
            self.moments[index],
            self.latency_s[index],
            None if self.choice is None else self.choice[index],
            np.repeat(np.arange(len(keep)), [len(each) for each in keep]),
        )

    @property
    def turns(self) -> list[NDArray[np.intp]]:
        """Where the requests of each turn are."""
        if self.turn is None:
            return [np.arange(len(self.moments))]
        return [np.flatnonzero(self.turn == each) for each in np.unique(self.turn)]

    def percentiles_s(
        self, percents: Sequence[float], latency_s: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Of a typical turn: the median over the turns of each of these percentiles, in seconds, as float64 [m]. A
        machine that stands still for a moment in fewer than half of them does not show.

        Args:
            latency_s: float64 [n], instead of what the requests took.
        """
        of_all = self.latency_s if latency_s is None else latency_s
        found = [np.percentile(of_all[turn], percents) for turn in self.turns]
        return np.asarray(np.median(found, axis=0))


def _stretches(turn: NDArray[np.intp], length: int) -> list[NDArray[np.intp]]:
    """Some of so many requests each, evenly spread over a turn; one that is shorter than all of them is taken whole."""
    if len(turn) <= _STRETCHES * length:
        return [turn]
    starts = np.linspace(0, len(turn) - length, _STRETCHES).astype(int)
    return [turn[first : first + length] for first in starts]


def calibrated(
    costs: Costs, batcher: SimulatedBatcher, observations: Sequence[ObservedRun], replicas: int = 1
) -> Costs:
    """The costs with which the simulation comes closest to these runs, of so many servers that got requests in
    turn: never further than with those given.

    Raises:
        UsageError: SciPy is not installed.
    """
    parts = [each.part(_MOST) for each in observations]
    # How instances share the cores is what single runs say least of: from both ends.
    alone = batcher.instances == 1
    starts = [costs.contention] if alone else [costs.contention, batcher.instances]
    found = [_descended(replace(costs, contention=each), batcher, parts, replicas) for each in starts]
    # Against all of it: what fits a part of the runs best may fit the whole worse than what was measured.
    return min([costs, *found], key=lambda each: misfit(each, batcher, observations, replicas))


def _descended(costs: Costs, batcher: SimulatedBatcher, observations: Sequence[ObservedRun], replicas: int) -> Costs:
    names = ["fixed", "item", "around", "spread"]
    if batcher.instances > 1:
        names.append("contention")
    if costs.weights:
        names.append("weights")

    def scaled(logarithms: NDArray[np.float64]) -> Costs:
        factors = np.clip(np.exp(logarithms), 1 / _BOUND, _BOUND)
        return _scaled(costs, dict(zip(names, factors.tolist(), strict=True)))

    def off(logarithms: NDArray[np.float64]) -> float:
        further = _NEARER * float((logarithms**2).sum())
        return misfit(scaled(logarithms), batcher, observations, replicas) + further

    return scaled(_least(off, len(names)))


def _least(off: Callable[[NDArray[np.float64]], float], count: int) -> NDArray[np.float64]:
    """Where this is the least, as far as is found from 0."""
    optimize = need_package("scipy.optimize", "tritonkit[plan]")
    first = np.vstack([np.zeros(count), _FIRST * np.eye(count)])
    found = optimize.minimize(
        off,
        first[0],
        method="Nelder-Mead",
        options={"initial_simplex": first, "maxfev": _TRIED, "xatol": 0.01, "fatol": 1e-4},
    )
    return np.asarray(found.x, np.float64)


def misfit(costs: Costs, batcher: SimulatedBatcher, observations: Sequence[ObservedRun], replicas: int = 1) -> float:
    """How far the simulated percentiles are from the real ones: the mean of the logarithms' squares."""
    total = 0.0
    for each in observations:
        found = simulate_fleet(each.moments, batcher, costs, replicas, "round_robin", choice=each.choice).latency_s
        ratios = each.percentiles_s(_POINTS, found) / each.percentiles_s(_POINTS)
        total += float(np.average(np.log(np.maximum(ratios, 1e-9)) ** 2, weights=_WEIGHTS))
    return total / max(1, len(observations))


def _scaled(costs: Costs, factors: dict[str, float]) -> Costs:
    drawn = tuple(np.array(costs.factors) ** factors["spread"])
    weights = tuple(np.array(costs.weights) ** factors.get("weights", 1.0))
    return replace(
        costs,
        fixed_s=costs.fixed_s * factors["fixed"],
        item_s=costs.item_s * factors["item"],
        around_s=costs.around_s * factors["around"],
        contention=max(1.0, costs.contention * factors.get("contention", 1.0)),
        spread=costs.spread * factors["spread"],
        factors=_with_mean_1(drawn),
        weights=_with_mean_1(weights),
    )


def _with_mean_1(values: Sequence[float]) -> tuple[float, ...]:
    return tuple((np.array(values) / np.mean(values)).tolist()) if values else ()
