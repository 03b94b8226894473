"""The search, on a machine that is simulated: what it finds is known, and no noise of this one is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tritonkit.errors import ServerStartError, ServerUnavailable
from tritonkit.perf.load.openloop import Arrivals, Generator, OpenLoad, OpenReport, Slo, draw
from tritonkit.perf.load.openloop.results import judge_slo, series_of, times_of
from tritonkit.perf.load.openloop.sender import INTERRUPTED, Record
from tritonkit.perf.simulation import highest_rate, simulate
from tritonkit.perf.tune import Costs, Evaluation, Gone, InstanceGroup, Listener, Outcome, Point, Search, Space
from tritonkit.perf.tune import search as module

SLO = Slo({99.0: 50.0})
FP32, INT8 = "onnx-fp32", "onnx-int8"
TRUE = {
    InstanceGroup(FP32, 1, 2): Costs(0.004, 0.0050, 0.002, 0.1),
    InstanceGroup(FP32, 2, 1): Costs(0.005, 0.0080, 0.002, 0.1),
    InstanceGroup(INT8, 1, 2): Costs(0.004, 0.0030, 0.002, 0.1),
    InstanceGroup(INT8, 2, 1): Costs(0.005, 0.0040, 0.002, 0.1),
}
SPACE = Space(tuple(TRUE), (1, 4, 8, 16), (0, 1000, 5000))
NOW = Point(InstanceGroup(FP32, 1, 2), 32)


class Machine:
    """Server and generator in one: answers as the simulation does with the true costs."""

    address = "simulated:8001"

    def __init__(
        self,
        off: float = 1.0,
        broken: str = "",
        interrupt_after: int = 10**9,
        faster: dict[tuple[int, ...], float] | None = None,
    ) -> None:
        self.point, self.off, self.broken = NOW, off, broken
        self.faster = faster or {}
        self.runs = self.prepared = 0
        self.interrupt_after = interrupt_after
        self.processor_s = 0.0

    def serve(self, point: Point) -> None:
        """Serves like `Served`; one variant may be broken."""
        if point.group.variant == self.broken:
            raise ServerStartError("tritonserver", found="it does not load")
        self.point = point

    def costs(self, generator: Generator, shapes: Sequence[int]) -> Costs:
        """Gives measured costs, which may be off."""
        true = TRUE[self.point.group]
        return replace(true, fixed_s=true.fixed_s * self.off, item_s=true.item_s * self.off)

    def used_s(self) -> float:
        """Behaves like `Served`."""
        return self.processor_s

    def prepare(self) -> None:
        """Known answers of another variant."""
        self.prepared += 1

    def run(self, load: OpenLoad) -> OpenReport:
        """Runs like `Generator.run`."""
        self.runs += 1
        slo = load.slo or SLO
        due = draw(Arrivals(seed=self.runs), load.rate_per_s, load.duration_s)
        assert len(due)  # the generator refuses such a run
        true, by = TRUE[self.point.group], self.faster.get(self.point.buckets, 1.0)
        true = replace(true, fixed_s=true.fixed_s / by, item_s=true.item_s / by)
        simulated = simulate(due, self.point.batcher, true, seed=self.runs)
        count = len(due)
        span_s = float((due + simulated.latency_s).max() - due.min())
        group = self.point.group
        self.processor_s += simulated.busy * group.instances * group.threads * span_s
        record = Record(due, due, due + simulated.latency_s, np.zeros(count, np.int32), (), 0.1)
        series = series_of("net", record, np.ones(count, bool), load.duration_s, slo)
        lag = times_of(np.zeros(max(1, count)))
        assert lag
        ended = INTERRUPTED if self.runs > self.interrupt_after else ""
        return OpenReport(load.duration_s, (series,), lag, (0.1,), (), tuple(judge_slo(series, slo)), ended)


def search(machine: Machine, **options: Any) -> Outcome:
    """Search on it."""
    options = {"budget_s": 600.0, "trial_s": 5.0, "space": SPACE} | options
    made = Search(machine, cast("Generator", machine), SLO, now=NOW, shapes=(), **options)
    return made.run()


@cache
def truth(point: Point) -> float:
    """The rate that a point holds."""
    return highest_rate(
        point.batcher,
        TRUE[point.group],
        99.0,
        50.0,
        lambda rate, seconds: draw(Arrivals(seed=99), rate, seconds),
        requests=4000,
        precision=0.02,
    )


@pytest.mark.parametrize("off", [pytest.param(1.0, marks=pytest.mark.slow), 0.6, 1.7])
def test_the_best_is_found_with_a_fraction_of_all_measurements(off: float) -> None:
    """At least 95 % of what the best of all points holds, within a fifth of the runs of finding each one's rate;
    also where the costs that were measured are far off."""
    machine = Machine(off)
    outcome = search(machine)
    points = [point for group in TRUE for point in SPACE.points(group)]
    best = max(truth(point) for point in points)
    assert outcome.best
    assert not outcome.ended
    assert truth(outcome.best.point) >= 0.95 * best
    assert outcome.best.rate_per_s >= 0.85 * best  # what held in every one of the validation's runs
    # Finding one point's rate takes about ten runs.
    assert outcome.measurements == machine.runs <= 0.2 * 10 * len(points)
    assert outcome.gain
    assert outcome.gain > 1.2


@pytest.mark.parametrize(("by", "chosen"), [(1.3, True), (0.8, False)])
def test_other_lengths_of_texts_are_taken_where_they_are_faster(by: float, chosen: bool) -> None:
    """They are tried with the best of all points, and answers are held against those of the same lengths."""
    machine = Machine(faster={(16, 64): by})
    outcome = search(machine, space=replace(SPACE, buckets=((16, 64),)))
    assert outcome.best
    assert (outcome.best.point.buckets == (16, 64)) is chosen
    tried = [e for e in outcome.evaluations if e.point.buckets]
    assert len(tried) == 1
    assert tried[0].point.group == outcome.best.point.group
    assert machine.prepared >= 2


def test_the_validation_holds_the_target() -> None:
    """All its runs at the rate that is given."""
    outcome = search(Machine())
    assert outcome.best
    last = [t for t in outcome.best.trials if t.rate_per_s == outcome.best.rate_per_s]
    assert len(last) >= 3
    assert all(trial.holds for trial in last)
    assert outcome.report
    assert outcome.report.series[0].latency
    assert outcome.report.series[0].latency.at(99) == last[-1].tail_ms


def test_a_variant_that_cannot_be_served_is_a_result_and_the_search_goes_on() -> None:
    """With what the server said."""
    outcome = search(Machine(broken=INT8))
    assert outcome.best
    assert outcome.best.point.group.variant == FP32
    problems = [evaluation for evaluation in outcome.evaluations if evaluation.problem]
    assert {evaluation.point.group for evaluation in problems} == {g for g in TRUE if g.variant == INT8}
    assert "it does not load" in problems[0].problem


def test_a_rate_that_does_not_hold_again_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every run of the validation misses, nothing was found, and nothing would be applied."""
    machine = Machine()
    honest = machine.run

    class Telling(Listener):
        def stage(self, stage: str, text: str) -> None:
            if stage == "validation":  # from now on it is as slow as never before
                monkeypatch.setattr(machine, "run", lambda load: slow(load))

    def slow(load: OpenLoad) -> OpenReport:
        report = honest(load)
        return replace(report, missed=("too slow",))

    outcome = search(machine, listener=Telling())
    assert not outcome.ended
    assert outcome.best is None
    assert outcome.gain is None
    assert "closest: p99 of" in outcome.limit
    assert outcome.limit.endswith("the queue or a busy machine")
    assert outcome.to_dict()["limit"] == outcome.limit
    tight = replace(outcome, slo=Slo({99.0: 6.0})).limit
    assert "alone, a request takes" in tight
    assert "the runs themselves" in tight


def test_the_better_one_of_the_validation_wins() -> None:
    """Whatever the race had said of both."""
    outcome = search(Machine())
    assert outcome.best
    assert outcome.current
    assert outcome.best.rate_per_s >= outcome.current.rate_per_s


def test_a_server_that_is_lost_in_the_validation_gets_a_second_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each of the two."""
    machine = Machine()
    honest, lost = machine.run, []

    class Telling(Listener):
        validating = False

        def stage(self, stage: str, text: str) -> None:
            self.validating = stage == "validation"

    listener = Telling()

    def run(load: OpenLoad) -> OpenReport:
        if listener.validating and len(lost) < 1:
            lost.append(load)
            raise ServerUnavailable("simulated:8001", found="the connection was lost")
        return honest(load)

    monkeypatch.setattr(machine, "run", run)
    outcome = search(machine, listener=listener)
    assert lost
    assert outcome.best
    assert outcome.best.stage == "validation"


def test_half_of_the_time_is_left_for_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups whose costs take too long are left out; by a clock of the test's own."""
    clock = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Slow(Machine):
        def costs(self, generator: Generator, shapes: Sequence[int]) -> Costs:
            clock[0] += 100
            return super().costs(generator, shapes)

    outcome = search(Slow(), budget_s=300.0)
    assert len(outcome.costs) == 2
    assert outcome.best
    assert not outcome.ended


def test_a_part_of_the_time_is_left_for_the_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The race ends before the budget does, the best so far is validated, and a second search goes on from there."""
    clock = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Timed(Machine):
        def serve(self, point: Point) -> None:
            clock[0] += 10
            super().serve(point)

        def run(self, load: OpenLoad) -> OpenReport:
            clock[0] += load.duration_s
            return super().run(load)

    first = search(Timed(), budget_s=300.0)
    assert not first.ended
    assert not first.complete
    assert first.best
    assert first.best.stage == "validation"
    assert clock[0] < 300 + 11  # a run that has begun ends
    second = search(Timed(), budget_s=2000.0, earlier=first.evaluations, costs=dict(first.costs))
    assert second.complete
    assert len(second.evaluations) > len(first.evaluations)


def test_time_is_kept_for_the_validation_only_where_there_is_something_to_validate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that is lost in its first run, and costs that took half of the time: the race still begins."""
    clock = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Lost(Machine):
        def costs(self, generator: Generator, shapes: Sequence[int]) -> Costs:
            clock[0] += 10
            return super().costs(generator, shapes)

        def run(self, load: OpenLoad) -> OpenReport:
            clock[0] += load.duration_s
            if not self.runs:
                self.runs += 1
                raise ServerUnavailable("simulated:8001", found="the connection was lost")
            return super().run(load)

    outcome = search(Lost(), budget_s=60.0, trial_s=1.0)
    assert [e.rate_per_s for e in outcome.evaluations if e.stage == "current"] == [0.0]
    assert outcome.best
    assert outcome.best.rate_per_s > 0


def test_the_next_best_wins_where_the_best_does_not_hold_again() -> None:
    """It is validated, too; what was luck in the race is no best for a later search either."""
    good = Point(InstanceGroup(INT8, 1, 2), 16)
    lucky = Point(InstanceGroup(FP32, 2, 1), 4)
    earlier = [
        Evaluation(good, "race", truth(good), 0.9 * truth(good), 45.0),
        Evaluation(lucky, "race", truth(lucky), 3 * truth(good), 45.0),
    ]
    outcome = search(Machine(), earlier=earlier, budget_s=6000.0)
    assert outcome.best
    assert outcome.current
    assert outcome.best.point == good
    assert outcome.best.stage == "validation"
    assert outcome.best.rate_per_s > outcome.current.rate_per_s
    assert [e.rate_per_s for e in outcome.evaluations if e.point == lucky] == [0.0]


def test_an_interrupt_gives_the_best_so_far() -> None:
    """And says so."""
    machine = Machine(interrupt_after=20)
    outcome = search(machine)
    assert outcome.ended == INTERRUPTED
    assert outcome.best
    assert outcome.best.rate_per_s > 0
    assert machine.runs == 21


def test_a_server_that_is_gone_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the best so far, and the reason."""
    machine = Machine()
    serve, served = machine.serve, []

    def going(point: Point) -> None:
        served.append(point)
        if len(served) > len(TRUE) + 3:
            raise Gone("net no longer answers")
        serve(point)

    monkeypatch.setattr(machine, "serve", going)
    outcome = search(machine)
    assert outcome.ended == "net no longer answers"
    assert len(served) == len(TRUE) + 4
    assert outcome.best


def test_no_time_gives_what_there_is() -> None:
    """A budget that is used up before anything was measured."""
    outcome = search(Machine(), budget_s=0.0)
    assert outcome.ended == "the budget is used up"
    assert outcome.best is None


def test_what_is_known_is_not_measured_again() -> None:
    """A second search goes on from the first one's evaluations and costs."""
    first = search(Machine())
    machine = Machine()
    second = search(machine, earlier=first.evaluations, costs=dict(first.costs))
    assert second.best
    assert first.best
    assert second.best.point == first.best.point
    # Only the validation is made again.
    again = sum(len(evaluation.trials) for evaluation in (second.best, second.current) if evaluation)
    assert second.measurements == again


def test_answers_of_another_variant_are_known_before_it_is_loaded() -> None:
    """Their numbers differ: the check of one would refuse those of the other."""
    machine = Machine()
    search(machine)
    assert machine.prepared >= 2


def test_everything_is_told() -> None:
    """Stages, runs and points, in their order."""
    calls: list[str] = []

    class Telling(Listener):
        def stage(self, stage: str, text: str) -> None:
            calls.append(stage)

        def trial(self, point: Point, trial: object) -> None:
            calls.append("trial")

        def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
            calls.append("evaluated")

    outcome = search(Machine(), listener=Telling())
    assert calls[:4] == ["costs"] * 4
    assert calls.index("current") < calls.index("race") < calls.index("validation")
    assert calls.count("trial") == outcome.measurements
