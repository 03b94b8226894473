"""Costs calibrated against open-loop runs by a few factors.

Measurements of single runs miss how runs slow each other down on one machine: the steps around the network, the
server's own threads, caches. So the simulation gets the same arrivals as real runs had, and a search finds the factors
of the costs with which its latencies match theirs. It uses the simplex method of Nelder and Mead (1965), which needs
no derivatives: a simulation is not smooth.
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
"""Weights of these percentiles: the highest varies most by chance."""
_MOST = 4000
"""Requests of each run that are simulated."""
_STRETCHES = 4
"""The number of stretches of each turn, because the machine may have been slow only in its first moment."""
_TRIED = 250
"""Simulations of all runs, from each start."""
_FIRST = 0.3
"""Distance of the first factors from the measured costs, as a logarithm."""
_NEARER = 1e-3
"""The penalty for a factor of e: costs that the runs do not reveal stay as measured."""
_BOUND = 8.0
"""The largest factor, and the inverse of the smallest."""


@dataclass(frozen=True)
class ObservedRun:
    """A real run at a constant rate, of one way of serving.

    Args:
        moments: float64 [n], arrivals of requests in seconds, ascending.
        latency_s: float64 [n], latency of each.
        choice: int64 [n], which of the costs' requests came each time; None if it is not known.
        turn: int64 [n], the stretch of the run in which each came, from 0, with pauses between; None: there is one.
    """

    moments: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    choice: NDArray[np.int64] | None = None
    turn: NDArray[np.int64] | None = None

    def part(self, count: int) -> ObservedRun:
        """About this number of its requests, as stretches from all over each turn; each stretch is a turn of its own.
        The whole run if it has no more.
        """
        if len(self.moments) <= count:
            return self
        length = max(1, count // (len(self.turns) * _STRETCHES))
        keep = [stretch for turn in self.turns for stretch in _stretches(turn, length)]
        index = np.concatenate(keep)
        return ObservedRun(
            self.moments[index],
            self.latency_s[index],
            None if self.choice is None else self.choice[index],
            np.repeat(np.arange(len(keep)), [len(stretch) for stretch in keep]),
        )

    @property
    def turns(self) -> list[NDArray[np.intp]]:
        """The places of each turn's requests."""
        if self.turn is None:
            return [np.arange(len(self.moments))]
        return [np.flatnonzero(self.turn == turn) for turn in np.unique(self.turn)]

    def percentiles_s(
        self, percents: Sequence[float], latency_s: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Percentiles of a typical turn, in seconds: for each the median over the turns, as float64 [m]. A pause of the
        machine in fewer than half of the turns does not show.

        Args:
            latency_s: float64 [n], latencies to use instead of the measured ones.
        """
        of_all = self.latency_s if latency_s is None else latency_s
        of_turns = [np.percentile(of_all[turn], percents) for turn in self.turns]
        return np.asarray(np.median(of_turns, axis=0))


def _stretches(turn: NDArray[np.intp], length: int) -> list[NDArray[np.intp]]:
    """Stretches of this length, evenly spread over a turn; a turn that is shorter than all of them is taken whole."""
    if len(turn) <= _STRETCHES * length:
        return [turn]
    starts = np.linspace(0, len(turn) - length, _STRETCHES).astype(int)
    return [turn[first : first + length] for first in starts]


def calibrated(
    costs: Costs, batcher: SimulatedBatcher, observations: Sequence[ObservedRun], replicas: int = 1
) -> Costs:
    """The costs with which the simulation comes closest to these runs, of servers that got requests in turn; never a
    worse fit than the given costs.

    Raises:
        UsageError: SciPy is not installed.
    """
    parts = [run.part(_MOST) for run in observations]
    # Single runs say least about how instances share the cores, so the search starts from both ends.
    alone = batcher.instances == 1
    starts = [costs.contention] if alone else [costs.contention, batcher.instances]
    candidates = [_descended(replace(costs, contention=contention), batcher, parts, replicas) for contention in starts]
    # Compared on all runs: the best fit for a part of them may fit the whole worse than the measured costs.
    return min([costs, *candidates], key=lambda candidate: misfit(candidate, batcher, observations, replicas))


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
    """The minimum of a function, searched from 0 on."""
    optimize = need_package("scipy.optimize", "tritonkit[plan]")
    first = np.vstack([np.zeros(count), _FIRST * np.eye(count)])
    result = optimize.minimize(
        off,
        first[0],
        method="Nelder-Mead",
        options={"initial_simplex": first, "maxfev": _TRIED, "xatol": 0.01, "fatol": 1e-4},
    )
    return np.asarray(result.x, np.float64)


def misfit(costs: Costs, batcher: SimulatedBatcher, observations: Sequence[ObservedRun], replicas: int = 1) -> float:
    """The distance of simulated percentiles from the real ones: the mean of the logarithms' squares."""
    total = 0.0
    for run in observations:
        simulated = simulate_fleet(run.moments, batcher, costs, replicas, "round_robin", choice=run.choice).latency_s
        ratios = run.percentiles_s(_POINTS, simulated) / run.percentiles_s(_POINTS)
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
