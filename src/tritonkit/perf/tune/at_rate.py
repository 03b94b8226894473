"""The search at one rate: the lowest latency, or the least processor time for a request, that meets the target there.

The simulation predicts for each way its tail at the rate, and the cost of its runs with the batches that form. Ways
are measured at the rate, the most promising first. A way that holds the target and is better is measured again,
because the better of two figures of one way is luck; then the best and the present way run in turns, longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop import Arrivals, draw
from tritonkit.perf.simulation import simulate
from tritonkit.perf.tune.objective import Objective
from tritonkit.perf.tune.outcome import Evaluation, Stage
from tritonkit.perf.tune.ranking import candidates
from tritonkit.perf.tune.search import FAILURES, WARM_S, RateTrial, Search
from tritonkit.perf.tune.space import Point

__all__ = ["SearchAtRate"]

_REQUESTS = 2000
_DOUBT = 1.5
"""The largest simulated tail, as a multiple of the target, with which a way is still tried."""
_CAREFUL = 0.8
"""Share of the rate that the present way holds, if no rate is given: it has to hold it again."""
_BETTER = 1.02
_IN_VAIN = 6
_FEWEST = 30
"""Requests of a run."""


@dataclass
class SearchAtRate(Search):
    """See `Search`; the `objective` is `latency` or `cost`, at one rate."""

    objective: Objective = field(default_factory=lambda: Objective("latency"))

    def _predict(self) -> None:
        """The value of each point by simulation, of those that may hold the target."""
        self._rate_per_s = self.objective.rate_per_s or self._held_now()
        percent, target_ms = self.slo.tightest
        for group, costs in self.costs.items():
            for point in self.space.points(group):
                if costs.capacity(point.batcher) <= self._rate_per_s:
                    continue
                moments = draw(Arrivals(), self._rate_per_s, _REQUESTS / self._rate_per_s)
                simulated = simulate(moments, point.batcher, costs)
                tail_ms = simulated.percentile_ms(percent)
                if tail_ms > _DOUBT * target_ms:
                    continue
                cpu_s = point.group.threads * costs.run_s(simulated.batch) / max(simulated.batch, 1.0)
                evaluation = Evaluation(point, "race", 0.0, self._rate_per_s, tail_ms, cpu_s=cpu_s)
                self._predicted[point] = self.objective.value(evaluation)

    def _held_now(self) -> float:
        """A rate that the present way certainly holds."""
        self.listener.stage("current", f"the rate that the present way holds: {self.now}")
        self._serve(self.now)
        rate, _ = self._search_rate(self.now, 0.0)
        if not rate:
            raise UsageError(
                "--rate",
                found=f"the way in which the model is served now does not hold {self.slo} at any rate",
                wanted="a rate, such as --rate 100",
            )
        return _CAREFUL * rate

    def _race(self) -> None:
        in_vain = 0
        for point in candidates(self._predicted):
            if in_vain >= _IN_VAIN:
                return
            if any(e.point == point and e.stage != "costs" for e in self.evaluations):
                continue
            self.listener.stage("race", f"{point}, at {self._rate_per_s:.1f}/s")
            evaluation = self._evaluate(point, "race")
            in_vain = 0 if evaluation is self._best else in_vain + 1

    def _evaluate(self, point: Point, stage: Stage) -> Evaluation:
        """One run at the rate, and another one if that would be the best."""
        predicted = self._predicted.get(point, 0.0)
        runs: list[tuple[RateTrial, float | None]] = []
        try:
            self._serve(point)
            runs.append(self._run(point, self.trial_s))
            least = _BETTER * self._value(self._best)
            evaluation = self._judged(point, stage, predicted, runs)
            if stage == "race" and self._value(evaluation) <= least:
                return self._keep(replace(evaluation, rate_per_s=0.0))
            runs.append(self._run(point, self.trial_s))
            evaluation = self._judged(point, stage, predicted, runs)
            if stage == "race" and self._value(evaluation) <= least:
                evaluation = replace(evaluation, rate_per_s=0.0)
        except FAILURES as error:
            trials = tuple(trial for trial, _ in runs)
            evaluation = Evaluation(point, stage, predicted, 0.0, None, trials, str(error))
        return self._keep(evaluation)

    def _run(self, point: Point, seconds: float) -> tuple[RateTrial, float | None]:
        """A run at the rate, longer where few requests come, and processor seconds of the server for each request."""
        seconds = max(seconds, _FEWEST / self._rate_per_s)
        before = self.served.used_s()
        trial = self._try(point, self._rate_per_s, seconds=seconds)
        after = self.served.used_s()
        if before is None or after is None or not trial.holds:
            return trial, None
        return trial, (after - before) / (self._rate_per_s * (seconds + WARM_S))

    def _judged(
        self, point: Point, stage: Stage, predicted: float, runs: list[tuple[RateTrial, float | None]]
    ) -> Evaluation:
        """All runs as one: the median tail, the mean processor time, and the rate if all of them held the target."""
        tails = [trial.tail_ms for trial, _ in runs if trial.tail_ms is not None]
        cpu = [used for _, used in runs if used is not None]
        return Evaluation(
            point,
            stage,
            predicted,
            self._rate_per_s if all(trial.holds for trial, _ in runs) else 0.0,
            float(np.median(tails)) if tails else None,
            tuple(trial for trial, _ in runs),
            cpu_s=float(np.mean(cpu)) if cpu else None,
        )

    def _validated(self, current: Evaluation | None) -> tuple[Evaluation | None, Evaluation | None]:
        """The best and the present way in turns, in longer runs; another one where the best does not hold."""
        ranked = sorted({e.point: e for e in self.evaluations if e.rate_per_s}.values(), key=self._value)
        sure_now: Evaluation | None = None
        while ranked:
            best = ranked.pop()
            both = [best.point, *([self.now] if current and best.point != self.now else [])]
            self.listener.stage("validation", f"{best.point}, in longer runs at {self._rate_per_s:.1f}/s")
            sure = self._in_turns(both)
            sure_now = sure.get(self.now, sure_now)
            winner = max(sure.values(), key=self._value)
            if self._value(winner):
                return winner, sure_now or current
        return None, sure_now or current

    def _in_turns(self, points: Sequence[Point]) -> dict[Point, Evaluation]:
        """Run each of these in turns, longer; one that cannot be served meanwhile holds nothing."""
        runs: dict[Point, list[tuple[RateTrial, float | None]]] = {point: [] for point in points}
        problems: dict[Point, str] = {}
        for _ in range(self.repeats):
            for point in points:
                try:
                    self._serve(point)
                    runs[point].append(self._run(point, 2 * self.trial_s))
                except FAILURES as error:
                    problems[point] = str(error)
        evaluations = {}
        for point in points:
            predicted = self._predicted.get(point, 0.0)
            evaluations[point] = self._judged(point, "validation", predicted, runs[point])
            if point in problems:
                evaluations[point] = replace(evaluations[point], rate_per_s=0.0, problem=problems[point])
        return evaluations
