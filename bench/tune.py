"""The rate that `tritonkit tune` finds, as a ratio to the best of a whole grid's, and the cost of finding it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.programs import ROOT
from bench.report import Ratio, Report
from bench.setting import chosen
from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop import Arrivals, OpenLoad, Slo, find_rate
from tritonkit.perf.tune import Outcome, Point, Search, Space
from tritonkit.perf.tune.run import Ready, TunePlan, prepared

if TYPE_CHECKING:
    from bench.setting import Setting

__all__ = ["run"]

TARGETS_MS = {"digits": 20.0, "sentences": 100.0}
BATCHES, DELAYS_US = (1, 8, 32), (0, 2000)
OF_BEST, OF_MEASUREMENTS = 0.95, 0.20
BUDGET_S = 600.0


@dataclass(frozen=True)
class _Grid:
    """All points with the rates that they hold, and the runs that it took."""

    rates: dict[Point, float]
    runs: int

    @property
    def best(self) -> Point:
        """The point that holds the most."""
        return max(self.rates, key=lambda point: self.rates[point])


def run(setting: Setting) -> Report:
    """Ratios of a search to a grid: the rate of its result to that of the grid's best, and its runs to the grid's."""
    setting.refuse_address()
    ratios: list[Ratio] = []
    for model in chosen("--models", setting.models, TARGETS_MS):
        ratios += _model(setting, model)
    return Report(
        "tune",
        f"rates that hold p99 of a search over those of the best of {len(BATCHES)} batch limits x {len(DELAYS_US)}"
        " delays x all instances and threads, found one by one",
        ratios,
    )


def _model(setting: Setting, model: str) -> list[Ratio]:
    slo = Slo({99.0: TARGETS_MS[model]})
    with prepared(TunePlan(ROOT, model, slo)) as ready:
        space = Space(ready.space.groups, BATCHES, DELAYS_US, preferred=False)
        grid = _exhaustive(setting, ready, space, slo)
        search = Search(ready.server, ready.generator, slo, space, ready.now, ready.shapes, BUDGET_S, setting.seconds)
        outcome = search.run()
        if outcome.best is None:
            raise UsageError(f"{model}: {slo}", found="nothing holds the target here", wanted="a faster machine")
        best = outcome.best.point
        rounds = [_pair(setting, ready, best, grid.best, slo) for _ in range(setting.rounds)]
        held = [_held(setting, ready, outcome, slo, turn) for turn in range(setting.rounds)]
    return [
        Ratio(
            f"{model}: rate of what was found / the grid's best",
            [mine / best for mine, best in rounds],
            at_least=OF_BEST,
            facts={"found": str(best), "the grid's best": str(grid.best)},
        ),
        Ratio(
            f"{model}: runs of the search / the grid's",
            [outcome.measurements / grid.runs],
            at_most=OF_MEASUREMENTS,
            facts={"runs": [outcome.measurements, grid.runs], "seconds": round(outcome.seconds)},
        ),
        Ratio(
            f"{model}: p99 in fresh runs / target",
            held,
            at_most=1.0,
            facts={"requests/s": round(outcome.best.rate_per_s, 1)},
        ),
    ]


def _exhaustive(setting: Setting, ready: Ready, space: Space, slo: Slo) -> _Grid:
    """The rate of each point, one after the other."""
    rates, runs = {}, 0
    for group in space.groups:
        for point in space.points(group):
            rate, count = _rate(setting, ready, point, slo)
            rates[point] = rate
            runs += count
    return _Grid(rates, runs)


def _rate(setting: Setting, ready: Ready, point: Point, slo: Slo) -> tuple[float, int]:
    ready.server.serve(point)
    search = find_rate(ready.generator, slo, trial_s=setting.seconds, longest_s=2 * setting.seconds, repeats=2)
    return search.low, len(search.trials)


def _pair(setting: Setting, ready: Ready, tuned: Point, best: Point, slo: Slo) -> tuple[float, float]:
    """The rates of both points, measured again; one run if they are the same point."""
    mine, _ = _rate(setting, ready, tuned, slo)
    if tuned == best:
        return mine, mine
    return mine, _rate(setting, ready, best, slo)[0]


def _held(setting: Setting, ready: Ready, outcome: Outcome, slo: Slo, turn: int) -> float:
    """A fresh run of the best at its rate."""
    assert outcome.best is not None  # noqa: S101
    ready.server.serve(outcome.best.point)
    load = OpenLoad(outcome.best.rate_per_s, 2 * setting.seconds, arrivals=Arrivals(seed=1000 + turn), slo=slo)
    (series,) = ready.generator.run(load).series
    percent, target_ms = slo.tightest
    return series.latency.at(percent) / target_ms if series.latency else float("inf")
