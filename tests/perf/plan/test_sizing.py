"""The number of replicas that hold a target, and the behavior of one of them at each rate."""

from __future__ import annotations

import pytest

from tritonkit.perf.load.openloop import Arrivals, Slo
from tritonkit.perf.plan import Fleet, curve, size
from tritonkit.perf.simulation import Costs, SimulatedBatcher

FLEET = Fleet(SimulatedBatcher(1, 8), Costs(0.004, 0.002, 0.001, 0.2))
SLO = Slo({99.0: 40.0})


@pytest.mark.parametrize("rate", [100.0, 1500.0, 30_000.0])
def test_one_replica_less_misses(rate: float) -> None:
    """The chosen fleet holds; the next smaller one does not."""
    sized = size(FLEET, rate, SLO)
    assert sized is not None
    assert sized.tails_ms[99.0] <= 40
    assert 0 < sized.busy <= 1
    assert sized.replicas >= rate / FLEET.capacity
    if sized.replicas > 1:
        assert not FLEET.simulate(rate, sized.replicas - 1).holds(SLO)


@pytest.mark.slow
def test_more_rate_and_tighter_targets_need_more() -> None:
    """And bursts do."""
    base = size(FLEET, 3000.0, SLO)
    more = size(FLEET, 6000.0, SLO)
    tighter = size(FLEET, 3000.0, Slo({99.0: 14.0}))
    bursts = size(Fleet(FLEET.batcher, FLEET.costs, "random", Arrivals("bursty", 4.0)), 3000.0, SLO)
    assert base
    assert more
    assert tighter
    assert bursts
    assert base.replicas < more.replicas
    assert base.replicas < tighter.replicas
    assert base.replicas < bursts.replicas


def test_a_target_below_what_a_request_takes_has_no_size() -> None:
    """However many replicas."""
    assert size(FLEET, 10.0, Slo({99.0: 5.0})) is None


def test_the_curve_gives_the_rate_that_a_replica_holds() -> None:
    """At that rate the fleet is close to its target; looser targets give more."""
    fleet_curve = curve(FLEET)
    held = fleet_curve.highest_rate(SLO)
    assert FLEET.simulate(8 * held, 8).at(99) == pytest.approx(40, rel=0.15)
    assert fleet_curve.highest_rate(SLO, 3.0) > held
    assert fleet_curve.highest_rate(SLO, 0.01) == 0
    read = fleet_curve.reader(99.0, 40.0)
    tail, late, busy = read(held)
    assert tail == pytest.approx(40, rel=0.02)
    assert late == pytest.approx(0.01, abs=0.005)
    assert 0.3 < busy <= 1
