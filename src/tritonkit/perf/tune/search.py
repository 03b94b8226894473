"""The search for the way of serving that meets a target best: a model of the batcher ranks, measurement decides.

1. The cost of runs is measured for each variant and each number of instances and threads: some seconds each.
2. The batcher is simulated with these costs for all points, to find the rate at which each would hold the target.
3. The present way is measured. Then every other, the most promising first, has to hold the target at a rate a little
   above the best so far. Most miss it within a second or two, and are out.
4. The best and the present way are measured again, at their rates, as a validation. If another one then promises more
   than the best holds, that one is measured too. A part of the budget is kept for this.

A proposer that learns from trials alone (optuna's, say) would spend most of its trials on learning what the simulation
knows; there are some hundreds of points, so all of them can be simulated.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tritonkit.errors import ClientError, PublishError, RenderError, ServerError
from tritonkit.perf.load.openloop import INTERRUPTED, Arrivals, Generator, OpenLoad, OpenReport, Slo, draw, find_rate
from tritonkit.perf.load.openloop.find_rate import RateTrial
from tritonkit.perf.simulation import Costs, highest_rate
from tritonkit.perf.tune.objective import Objective
from tritonkit.perf.tune.outcome import Evaluation, Listener, Outcome, Stage
from tritonkit.perf.tune.ranking import candidates, correction, tail_ms
from tritonkit.perf.tune.server import Gone, Served
from tritonkit.perf.tune.space import InstanceGroup, Point, Space

__all__ = ["FAILURES", "HOPELESS", "WARM_S", "RateTrial", "Search"]

_ABOVE = 1.05
"""The factor above the best rate at which a point is tried first."""
_CLIMB, _QUICK = 1.15, 1.6
_PRECISION = 0.05
_SIMULATED = 1000
HOPELESS = 0.7
"""Share of the best prediction below which a point is neither simulated closely nor tried."""
_DOUBT = 1.3
"""A point is still tried if the corrected model promises 1 / 1.3 of the best."""
WARM_S = 0.5
"""Warm-up of a run, before its measured part."""
_DOWN, _DOWN_FAR = 0.97, 0.9
"""The factor to the next, lower rate of a validation, and the factor if time is left for few rates."""
_FEW_RATES = 3
_KEPT = 1.5
"""The part of the budget that is kept for the validation, relative to its runs if the first rates hold ..."""
_MOST_KEPT = 0.5
"""... and its largest share."""
_SERVED_S = 5.0
"""Further seconds for each way that is served again."""
_IN_VAIN = 8
"""Tries without a better one after which the race is over."""
FAILURES = (ClientError, ServerError, RenderError, PublishError)
"""Errors that exclude a point from the search."""


class _Over(Exception):
    """The budget is used up, or there was an interrupt; its text says which."""


@dataclass
class Search:
    """One search; `run` does it.

    Args:
        served: the server.
        generator: the load generator.
        slo: the target.
        space: the points to choose from.
        now: the point that is served today.
        shapes: a number for the shape of each of the generator's requests; empty if all are the same.
        budget_s: the time for the whole search.
        trial_s: duration of a run under load.
        repeats: runs of a validation.
        earlier: evaluations of an earlier search of the same model and target, which are not repeated.
        costs: costs of runs from an earlier search.
        objective: the highest rate; `SearchAtRate` has the others.
    """

    served: Served
    generator: Generator
    slo: Slo
    space: Space
    now: Point
    shapes: Sequence[int]
    budget_s: float
    trial_s: float = 4.0
    repeats: int = 3
    listener: Listener = field(default_factory=Listener)
    earlier: Sequence[Evaluation] = ()
    costs: dict[InstanceGroup, Costs] = field(default_factory=dict)
    objective: Objective = field(default_factory=Objective)

    def __post_init__(self) -> None:
        self.evaluations: list[Evaluation] = list(self.earlier)

    def run(self) -> Outcome:
        """Search until nothing better can be expected, the budget is used up, or an interrupt comes."""
        self._began = time.monotonic()
        self._kept_s = 0.0
        self._measurements = 0
        self._checked = self.now.group.variant, self.now.buckets
        self._predicted: dict[Point, float] = {}
        self._best = max(self.evaluations, key=self._value, default=None)
        self._reports: dict[Point, OpenReport] = {}
        current: Evaluation | None = None
        ended, complete = "", False
        try:
            self._measure_costs()
            self._predict()
            current = self._current()
            complete = self._searched()
            best, current = self._validated(current)
        except (_Over, Gone) as why:
            ended, best = str(why), self._best
        except KeyboardInterrupt:
            ended, best = INTERRUPTED, self._best
        if best is not None and not best.rate_per_s:
            best = None
        return Outcome(
            self.slo,
            self.now,
            best,
            current,
            tuple(self.evaluations),
            dict(self.costs),
            dict(self._predicted),
            self._measurements,
            time.monotonic() - self._began,
            ended,
            self._reports.get(best.point) if best else None,
            self.objective,
            complete=complete,
        )

    def _value(self, evaluation: Evaluation | None) -> float:
        return self.objective.value(evaluation)

    # -- 1 and 2: costs, and the predictions from them

    def _measure_costs(self) -> None:
        groups = sorted({self.now.group, *self.space.groups}, key=lambda g: (g != self.now.group, g))
        for number, group in enumerate(groups, 1):
            if group in self.costs:
                continue
            if group != self.now.group and self._spent_s() > self.budget_s / 2:
                return  # the rest is for points whose costs are known
            self._check_time()
            self.listener.stage("costs", f"costs of runs, {number} of {len(groups)}: {group}")
            most = max((p.max_batch_size for p in self.space.points(group)), default=1)
            try:
                self.served.serve(Point(group, most))
                self.costs[group] = self.served.costs(self.generator, self.shapes)
            except FAILURES as error:
                point = Point(group, most)
                self._keep(Evaluation(point, "costs", 0.0, 0.0, None, problem=str(error)))

    def _predict(self) -> None:
        """The rate that each point would hold, by simulation; 0 for those far below the best."""
        percent, target_ms = self.slo.tightest
        points = {
            point
            for group in self.costs
            for point in (*self.space.points(group), *([self.now] if group == self.now.group else []))
        }
        best = 0.0
        for point in sorted(points, key=lambda p: (-self.costs[p.group].capacity(p.batcher), p)):
            self._predicted[point] = highest_rate(
                point.batcher,
                self.costs[point.group],
                percent,
                target_ms,
                partial(draw, Arrivals()),
                at_least=0.0 if point == self.now else best * HOPELESS,
                requests=_SIMULATED,
                precision=_PRECISION,
            )
            best = max(best, self._predicted[point])

    # -- 3: measurements

    def _current(self) -> Evaluation | None:
        """The evaluation of the present way, unless it is known."""
        for evaluation in self.evaluations:
            if evaluation.point == self.now and evaluation.stage != "costs":
                return evaluation
        self.listener.stage("current", f"as it is served now: {self.now}")
        measured = self._evaluate(self.now, "current")
        return measured if measured.rate_per_s else None

    def _searched(self) -> bool:
        """Race until the rest of the budget is needed for the validation; whether all promising points were tried."""
        both_s = 2 * (self._validation_s + _SERVED_S)  # the best, and the present way
        self._kept_s = min(_KEPT * both_s, _MOST_KEPT * self.budget_s)
        try:
            self._race()
            self._lengths()
        except _Over:
            return False
        finally:
            self._kept_s = 0.0
        return True

    def _race(self) -> None:
        """Try the others, the most promising first."""
        in_vain = 0
        for point in candidates(self._predicted):
            if in_vain >= _IN_VAIN:
                return
            if any(e.point == point for e in self.evaluations):
                continue
            promised = self._predicted[point] * correction(self.evaluations, point.group)
            best = self._best.rate_per_s if self._best else 0.0
            if promised * _DOUBT < best:
                continue
            self.listener.stage("race", f"{point} (the model says {promised:.0f}/s)")
            evaluation = self._evaluate(point, "race")
            in_vain = 0 if evaluation is self._best else in_vain + 1

    def _lengths(self) -> None:
        """Other lengths of texts with the best point: their effect on runs is measured, not simulated."""
        for buckets in self.space.buckets if self._best else ():
            point = replace(self._best.point, buckets=buckets)  # type: ignore[union-attr]
            if any(e.point.buckets == buckets for e in self.evaluations):
                continue
            self._predicted[point] = self._predicted.get(replace(point, buckets=()), 0.0)
            self.listener.stage("race", str(point))
            self._evaluate(point, "race")

    def _evaluate(self, point: Point, stage: Stage) -> Evaluation:
        """Serve a point and find the rate it holds; in a race, only whether it beats the best."""
        predicted = self._predicted.get(point, 0.0)
        try:
            self._serve(point)
            if stage == "race" and self._best is not None:
                rate, trials = self._beat(point, self._best.rate_per_s)
            else:
                rate, trials = self._search_rate(point, predicted)
            evaluation = Evaluation(point, stage, predicted, rate, tail_ms(trials, rate), tuple(trials))
        except FAILURES as error:
            evaluation = Evaluation(point, stage, predicted, 0.0, None, problem=str(error))
        return self._keep(evaluation)

    def _serve(self, point: Point) -> None:
        self.served.serve(point)
        if (point.group.variant, point.buckets) != self._checked:  # whose answers are the known ones
            self.generator.prepare()
            self._checked = point.group.variant, point.buckets

    def _keep(self, evaluation: Evaluation) -> Evaluation:
        self.evaluations.append(evaluation)
        if self._value(evaluation) > self._value(self._best):
            self._best = evaluation
        self.listener.evaluated(evaluation, self._best)
        return evaluation

    def _search_rate(self, point: Point, predicted: float) -> tuple[float, list[RateTrial]]:
        """The highest rate of one point, searched from the model's prediction on."""
        search = find_rate(
            self.generator,
            self.slo,
            start_per_s=predicted * 0.8 or None,
            trial_s=self.trial_s,
            longest_s=2 * self.trial_s,
            repeats=2,
            precision=_PRECISION,
            say=lambda trial: self._saw(point, trial),
        )
        if search.ended == INTERRUPTED:
            raise KeyboardInterrupt
        return search.low, list(search.trials)

    def _beat(self, point: Point, best: float) -> tuple[float, list[RateTrial]]:
        """The rate of a point that holds more than the best; 0 if it does not."""
        trials: list[RateTrial] = []
        low, high, rate = 0.0, 0.0, best * _ABOVE
        while not high or (low and high / low > 1 + _PRECISION):
            trial = self._try(point, rate)
            trials.append(trial)
            if trial.holds:
                low = rate
            elif not low:
                return 0.0, trials
            else:
                high = rate
            rate = (low * high) ** 0.5 if high else low * self._climb(point, low)
        # A single success may have been luck.
        while low > best:
            trials.append(self._try(point, low))
            if trials[-1].holds:
                return low, trials
            low /= 1 + _PRECISION
        return 0.0, trials

    def _climb(self, point: Point, rate: float) -> float:
        """The step up from a rate that was held: large if the model promises far more."""
        return _QUICK if self._predicted.get(point, 0.0) > 2 * rate else _CLIMB

    def _try(self, point: Point, rate: float, *, seconds: float = 0.0, give_up: bool = True) -> RateTrial:
        seed = self._measurements
        load = OpenLoad(
            rate, seconds or self.trial_s, warm_s=WARM_S, arrivals=Arrivals(seed=seed), slo=self.slo, give_up=give_up
        )
        report = self.generator.run(load)
        if report.ended == INTERRUPTED:
            raise KeyboardInterrupt
        trial = RateTrial.of(report, rate, self.slo)
        self._saw(point, trial)
        if trial.holds:
            self._reports[point] = report
        return trial

    def _saw(self, point: Point, trial: RateTrial) -> None:
        self._measurements += 1
        self.listener.trial(point, trial)
        self._check_time()

    # -- 4: validation

    def _validated(self, current: Evaluation | None) -> tuple[Evaluation | None, Evaluation | None]:
        """Best and present way, each at its rate or the next below that it holds in every run; the better one wins.

        Then every other one that promises more than that, because a lucky best must not hide a good one.
        If the time suffices only for some of them, the others keep their earlier figures.
        """
        chosen = {e.point: e for e in (self._best, current) if e is not None and e.rate_per_s}
        others = {e.point: e for e in self.evaluations if e.rate_per_s and e.point not in chosen}
        sure: dict[Point, Evaluation] = {}
        for evaluation in (*chosen.values(), *sorted(others.values(), key=self._value, reverse=True)):
            if evaluation.point in others and self._value(evaluation) <= max(map(self._value, sure.values())):
                break
            try:
                sure[evaluation.point] = self._hold(evaluation)
            except _Over:
                if not any(e.rate_per_s for e in sure.values()):
                    raise
        self._correct(sure)
        best = max(sure.values(), key=self._value, default=None)
        return best, None if current is None else sure.get(current.point, current)

    def _correct(self, sure: Mapping[Point, Evaluation]) -> None:
        """Replace the race's figures of these points: a later search begins with the rates that they hold."""
        self.evaluations = [
            replace(e, rate_per_s=sure[e.point].rate_per_s, trials=e.trials + sure[e.point].trials)
            if e.point in sure and e.rate_per_s
            else e
            for e in self.evaluations
        ]

    def _hold(self, evaluation: Evaluation) -> Evaluation:
        """The rate, a little lower each time, at which the target holds in all of some longer runs; 0 if it does not
        down to half of it, or the model cannot be served twice in a row."""
        self.listener.stage("validation", f"{evaluation.point}, in longer runs")
        trials: list[RateTrial] = []
        rate, tail_ms, problem = 0.0, None, ""
        for _ in range(2):
            try:
                self._serve(evaluation.point)
                rate, tail_ms = self._held(evaluation.point, evaluation.rate_per_s, trials)
            except FAILURES as error:
                problem = str(error)
            else:
                problem = ""
                break
        return replace(
            evaluation, stage="validation", rate_per_s=rate, tail_ms=tail_ms, trials=tuple(trials), problem=problem
        )

    def _held(self, point: Point, rate: float, trials: list[RateTrial]) -> tuple[float, float | None]:
        """The rate, from this one down to half of it, that holds in all runs, and its worst tail; 0 for none."""
        lowest = rate / 2
        while rate > lowest:
            runs: list[RateTrial] = []
            while len(runs) < self.repeats and all(run.holds for run in runs):
                runs.append(self._try(point, rate, seconds=2 * self.trial_s))
                trials.append(runs[-1])
            if all(run.holds for run in runs):
                return rate, max((run.tail_ms for run in runs if run.tail_ms is not None), default=None)
            few = self.budget_s - self._spent_s() < _FEW_RATES * self._validation_s
            rate *= _DOWN_FAR if few else _DOWN
        return 0.0, None

    @property
    def _validation_s(self) -> float:
        """Duration of the runs of one way at one rate."""
        return self.repeats * (2 * self.trial_s + WARM_S)

    def _spent_s(self) -> float:
        return time.monotonic() - self._began

    def _check_time(self) -> None:
        """Raise at the end of the budget; a part is kept for the validation once there is something to validate."""
        kept_s = self._kept_s if self._value(self._best) else 0.0
        if self._spent_s() > self.budget_s - kept_s:
            raise _Over("the budget is used up")
