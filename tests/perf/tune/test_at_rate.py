"""The search at one rate, on the simulated machine of `test_search`: what is best there is known."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import pytest

from tests.perf.tune.test_search import FP32, INT8, NOW, SLO, SPACE, TRUE, Machine, truth
from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop import Arrivals, Generator, Slo, draw
from tritonkit.perf.simulation import simulate
from tritonkit.perf.tune import Objective, Outcome, Point, SearchAtRate

RATE = 60.0
"""About half of what the present way holds."""
POINTS = [point for group in TRUE for point in SPACE.points(group)]


def search(machine: Machine, objective: Objective, slo: Slo = SLO, **options: Any) -> Outcome:
    """Search on it."""
    options = {"budget_s": 600.0, "trial_s": 5.0} | options
    made = SearchAtRate(machine, cast("Generator", machine), slo, SPACE, NOW, (), objective=objective, **options)
    return made.run()


@cache
def simulated_at(point: Point) -> tuple[float, float]:
    """p99 in milliseconds and processor seconds for a request, in truth."""
    moments = draw(Arrivals(seed=99), RATE, 200.0)
    simulated = simulate(moments, point.batcher, TRUE[point.group])
    span_s = float((moments + simulated.latency_s).max() - moments.min())
    used_s = simulated.busy * point.group.instances * point.group.threads * span_s
    return simulated.percentile_ms(99), used_s / len(moments)


@pytest.mark.slow
@pytest.mark.parametrize("off", [1.0, 0.7, 1.4])
@pytest.mark.parametrize(("name", "at"), [("latency", 0), ("cost", 1)])
def test_the_best_at_a_rate_is_found(name: Any, at: int, off: float) -> None:
    """Within a tenth of the best of all points that hold the target, also where the costs were measured wrong."""
    machine = Machine(off)
    outcome = search(machine, Objective(name, RATE))
    holding = [point for point in POINTS if simulated_at(point)[0] <= 50.0]
    best = min(simulated_at(point)[at] for point in holding)
    assert outcome.best
    assert not outcome.ended
    assert outcome.best.rate_per_s == RATE
    assert outcome.best.tail_ms is not None
    assert outcome.best.tail_ms <= 50.0
    assert simulated_at(outcome.best.point)[at] <= 1.1 * best
    assert outcome.measurements == machine.runs <= 0.8 * len(POINTS)
    assert outcome.gain
    assert outcome.gain > 1.0


def test_without_a_rate_it_is_one_that_the_present_way_holds() -> None:
    """A little less than what it was found to hold."""
    outcome = search(Machine(), Objective("latency"))
    assert outcome.best
    assert 0.7 * truth(NOW) <= outcome.best.rate_per_s <= truth(NOW)


def test_a_rate_that_nothing_holds_gives_nothing_and_says_what_limits() -> None:
    """The simulation lets no way pass, so the number of runs is small."""
    outcome = search(Machine(), Objective("cost", 5000.0))
    assert outcome.best is None
    assert outcome.gain is None
    assert "alone, a request takes" in outcome.limit


def test_a_target_that_nothing_holds_now_asks_for_a_rate() -> None:
    """There is none to take."""
    with pytest.raises(UsageError, match="does not hold p99=1ms at any rate") as raised:
        search(Machine(), Objective("latency"), Slo({99.0: 1.0}))
    assert "--rate" in str(raised.value)


def test_a_variant_that_cannot_be_served_is_a_result_and_the_search_goes_on() -> None:
    """With what the server said."""
    outcome = search(Machine(broken=INT8), Objective("latency", RATE))
    assert outcome.best
    assert outcome.best.point.group.variant == FP32
    assert any("it does not load" in evaluation.problem for evaluation in outcome.evaluations)


def test_an_interrupt_gives_the_best_so_far() -> None:
    """Not validated, and said so."""
    outcome = search(Machine(interrupt_after=6), Objective("latency", RATE))
    assert outcome.ended == "interrupted"
    assert outcome.best


@pytest.mark.parametrize(
    ("name", "rate", "words"),
    [("speed", None, "throughput or latency or cost"), ("throughput", 5.0, "latency or cost")],
)
def test_an_objective_that_there_is_not_is_refused(name: Any, rate: Any, words: str) -> None:
    """With those that there are."""
    with pytest.raises(UsageError, match=words):
        Objective(name, rate)
