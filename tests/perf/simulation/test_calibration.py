"""Costs that were measured wrong are put right by runs under load, as far as those show it."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop import Arrivals, draw
from tritonkit.perf.simulation import Costs, ObservedRun, SimulatedBatcher, calibrated, misfit, simulate

TRUE = Costs(0.006, 0.002, 0.004, spread=0.5)


def observed(costs: Costs, batcher: SimulatedBatcher, share: float, seed: int) -> ObservedRun:
    """A run that is simulated with the true costs, other runs' factors."""
    rate = share * costs.capacity(batcher)
    moments = draw(Arrivals(seed=seed), rate, 1000 / rate)
    return ObservedRun(moments, simulate(moments, batcher, costs, seed=50 + seed).latency_s)


@pytest.mark.parametrize(
    ("batcher", "true"),
    [
        (SimulatedBatcher(1, 8), TRUE),
        pytest.param(SimulatedBatcher(2, 4, (2,), 0.002), replace(TRUE, contention=1.7), marks=pytest.mark.slow),
    ],
)
def test_what_was_measured_wrong_is_put_right(batcher: SimulatedBatcher, true: Costs) -> None:
    """At rates that were not observed, too: the simulation is far closer to other runs than before."""
    wrong = replace(
        true,
        fixed_s=0.6 * true.fixed_s,
        item_s=0.6 * true.item_s,
        around_s=2 * true.around_s,
        spread=0.2,
        contention=1.0,
    )
    runs = [observed(true, batcher, share, k) for k, share in enumerate((0.4, 0.6, 0.8, 0.95))]
    corrected = calibrated(wrong, batcher, runs)
    assert misfit(corrected, batcher, runs) < 0.2 * misfit(wrong, batcher, runs)
    others = [observed(true, batcher, share, 9) for share in (0.5, 0.7)]
    assert misfit(corrected, batcher, others) < 0.5 * misfit(wrong, batcher, others)


def test_a_pause_in_one_turn_is_not_put_down_to_the_costs() -> None:
    """Percentiles are those of a typical turn; those of all requests as one have the pause in them."""
    batcher = SimulatedBatcher(1, 8)
    run = observed(TRUE, batcher, 0.6, 3)
    turn = np.arange(len(run.moments)) // 200
    calm = replace(run, turn=turn)
    paused = replace(calm, latency_s=run.latency_s + 5.0 * (turn == 2))
    assert paused.percentiles_s((99,)) == pytest.approx(calm.percentiles_s((99,)), rel=0.25)
    assert np.percentile(paused.latency_s, 99) > 5.0
    assert misfit(TRUE, batcher, [paused]) < 1.5 * misfit(TRUE, batcher, [calm]) + 0.01


def test_a_part_is_from_all_over_each_turn() -> None:
    """Each stretch with all that is known of it; a run that is short enough is left whole."""
    moments = np.arange(60.0)
    run = ObservedRun(moments, moments / 10, np.arange(60), np.repeat([0, 1, 2], 20))
    part = run.part(24)
    assert part.moments.tolist() == [at + k for at in (0, 6, 12, 18, 20, 26, 32, 38, 40, 46, 52, 58) for k in (0, 1)]
    assert part.choice is not None
    assert part.choice.tolist() == part.moments.tolist()
    assert part.latency_s.tolist() == pytest.approx(part.moments / 10)
    assert [len(turn) for turn in part.turns] == [2] * 12
    assert run.part(60) is run


def test_turns_of_different_lengths() -> None:
    """No request twice, and moments in their order: a short turn is taken whole."""
    turn = np.repeat([0, 1, 2, 3], [120, 120, 90, 7])
    part = ObservedRun(np.arange(337.0), np.ones(337), None, turn).part(320)
    assert (np.diff(part.moments) > 0).all()
    assert part.moments[-7:].tolist() == list(range(330, 337))
    assert [len(turn) for turn in part.turns] == [20] * 12 + [7]


def test_the_whole_of_the_runs_decides() -> None:
    """Slowness only in the sampled stretches is not attributed to the costs."""
    batcher = SimulatedBatcher(1, 8)
    rate = 0.6 * TRUE.capacity(batcher)
    moments = draw(Arrivals(seed=6), rate, 40_000 / rate)
    run = ObservedRun(moments, simulate(moments, batcher, TRUE, seed=56).latency_s)
    taken = np.isin(run.moments, run.part(4000).moments)
    slow = replace(run, latency_s=np.where(taken, 4, 1) * run.latency_s)
    corrected = calibrated(TRUE, batcher, [slow])
    assert misfit(corrected, batcher, [slow]) <= misfit(TRUE, batcher, [slow])


def test_requests_of_different_weight_are_put_right() -> None:
    """The lightest and the heaviest were measured too close to each other."""
    true = Costs(0.002, 0.004, 0.001, weights=(0.1, 0.4, 2.5))
    wrong = replace(true, weights=(0.4, 0.7, 1.9))
    batcher, rng = SimulatedBatcher(1, 4), np.random.default_rng(5)
    runs = []
    for k, share in enumerate((0.4, 0.8)):
        rate = share * true.capacity(batcher)
        moments = draw(Arrivals(seed=k), rate, 1000 / rate)
        choice = rng.integers(3, size=len(moments))
        latency_s = simulate(moments, batcher, true, seed=9, choice=choice).latency_s
        runs.append(ObservedRun(moments, latency_s, choice))
    corrected = calibrated(wrong, batcher, runs)
    assert max(corrected.weights) > 2.2
    assert misfit(corrected, batcher, runs) < 0.3 * misfit(wrong, batcher, runs)


def test_without_scipy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy is not a requirement of the package."""
    monkeypatch.delitem(sys.modules, "scipy.optimize", raising=False)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(UsageError, match=r"pip install 'tritonkit\[plan\]'"):
        calibrated(TRUE, SimulatedBatcher(1, 8), [observed(TRUE, SimulatedBatcher(1, 8), 0.5, 1)])
