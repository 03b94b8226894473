"""Costs that were measured wrong are put right by runs under load, as far as those show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tritonkit.measure.openloop import Arrivals, draw
from tritonkit.simulation import Batcher, Costs, Observation, calibrated, misfit, simulate

TRUE = Costs(0.006, 0.002, 0.004, spread=0.5)


def seen(costs: Costs, batcher: Batcher, share: float, seed: int) -> Observation:
    """A run that is simulated with the true costs, other runs' factors."""
    rate = share * costs.capacity(batcher)
    moments = draw(Arrivals(seed=seed), rate, 1000 / rate)
    return Observation(moments, simulate(moments, batcher, costs, seed=50 + seed).latency_s)


@pytest.mark.parametrize(
    ("batcher", "true"),
    [(Batcher(1, 8), TRUE), (Batcher(2, 4, (2,), 0.002), replace(TRUE, contention=1.7))],
)
def test_what_was_measured_wrong_is_put_right(batcher: Batcher, true: Costs) -> None:
    """At rates that were not seen, too: the simulation is far closer to other runs than before."""
    wrong = replace(
        true, fixed_s=0.6 * true.fixed_s, item_s=0.6 * true.item_s, around_s=2 * true.around_s,
        spread=0.2, contention=1.0,
    )  # fmt: skip
    runs = [seen(true, batcher, share, k) for k, share in enumerate((0.4, 0.6, 0.8, 0.95))]
    found = calibrated(wrong, batcher, runs)
    assert misfit(found, batcher, runs) < 0.2 * misfit(wrong, batcher, runs)
    others = [seen(true, batcher, share, 9) for share in (0.5, 0.7)]
    assert misfit(found, batcher, others) < 0.5 * misfit(wrong, batcher, others)
