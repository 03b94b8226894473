"""Days under rules: what they cost, whether they keep the target, how calm they are."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tritonkit.perf.load.openloop import Slo
from tritonkit.perf.plan import Curve, Day, Fleet, ScalingRule, Terms, Traffic, curve, of_shape, simulate_day
from tritonkit.perf.plan.traffic import DAY_S, STEP_S
from tritonkit.perf.simulation import Costs, SimulatedBatcher

SLO = Slo({99.0: 40.0})
FLEET = Fleet(SimulatedBatcher(1, 8), Costs(0.004, 0.002, 0.001, 0.2))
RATE = 5000.0


@cache
def of_one() -> Curve:
    """One replica."""
    return curve(FLEET)


def terms(start_s: float = 60.0, spare: int = 1) -> Terms:
    """For the rate."""
    held = of_one().highest_rate(SLO)
    return Terms(99.0, 40.0, held, int(np.ceil(RATE / held)) + spare, spare, start_s)


def day(rule: ScalingRule, traffic: Traffic | None = None, **options: float) -> Day:
    """A day of it."""
    return simulate_day(rule, traffic or of_shape("daily", RATE), of_one(), terms(**options))  # type: ignore[arg-type]


def test_without_autoscaling_all_are_there_all_day() -> None:
    """And the target is kept."""
    simulated = day(ScalingRule("none"))
    assert simulated.replica_hours == pytest.approx(24 * terms().fixed)
    assert (simulated.changes, simulated.flaps, simulated.behind_s) == (0, 0, 0)
    assert simulated.least == simulated.most == terms().fixed
    assert simulated.keeps(99.0)
    assert len(simulated.minutes) == 24 * 60


def test_autoscaling_follows_the_day_and_costs_less() -> None:
    """Fewer in the night, enough in the afternoon."""
    simulated = day(ScalingRule("rate", 0.8))
    assert simulated.replica_hours < 0.9 * day(ScalingRule("none")).replica_hours
    assert simulated.keeps(99.0)
    assert simulated.least < simulated.most
    night, afternoon = simulated.minutes[4 * 60], simulated.minutes[16 * 60]
    assert night.ready < afternoon.ready
    assert all(minute.ready >= 1 for minute in simulated.minutes)


def test_a_higher_target_is_cheaper_and_later() -> None:
    """The choice that there is."""
    low, high = day(ScalingRule("rate", 0.5)), day(ScalingRule("rate", 1.2))
    assert high.replica_hours < low.replica_hours
    assert high.late > low.late
    assert high.behind_s > low.behind_s


def test_a_slow_start_is_late_in_a_spike() -> None:
    """Replicas that come after the spike are of no use."""
    traffic = of_shape("spike", RATE, noisy=False)
    quick = day(ScalingRule("rate", 0.8), traffic, start_s=10.0)
    slow = day(ScalingRule("rate", 0.8), traffic, start_s=900.0)
    assert slow.behind_s > quick.behind_s + 600
    assert slow.late > quick.late
    assert not slow.keeps(99.0)


def test_a_schedule_knows_what_comes() -> None:
    """The same spike, and nobody is late."""
    traffic = of_shape("spike", RATE, noisy=False)
    simulated = day(ScalingRule("schedule", 1.0), traffic, start_s=900.0)
    assert simulated.behind_s == 0
    assert simulated.late <= 0.01


def test_a_rate_that_swings_makes_rules_flap() -> None:
    """Up and down every ten minutes; a quick start does not help against the rule itself."""
    steps = np.arange(int(DAY_S / STEP_S)) * STEP_S
    swings = Traffic("swings", np.where(steps % 1200 < 600, RATE, RATE / 5))
    simulated = day(ScalingRule("rate", 0.6), swings, start_s=5.0)
    assert simulated.flaps > 20
    assert not simulated.keeps(99.0)
    assert str(simulated.rule) == "rate 60%"


def test_utilization_asks_for_too_many_of_a_server_that_batches() -> None:
    """It runs nearly always, with small batches, long before it is full."""
    assert day(ScalingRule("utilization", 0.6)).replica_hours > 1.3 * day(ScalingRule("rate", 0.6)).replica_hours


def test_what_is_over_capacity_waits_and_is_late() -> None:
    """A fleet of one under ten times its rate: the backlog of the first hour is late for hours."""
    steps = np.arange(int(DAY_S / STEP_S)) * STEP_S
    burst = Traffic("burst", np.where(steps < 3600, RATE, 1.0))
    held = of_one().highest_rate(SLO)
    few = Terms(99.0, 40.0, held, 2, 1, 60.0)
    simulated = simulate_day(ScalingRule("none"), burst, of_one(), few)
    assert simulated.late > 0.9
    assert simulated.minutes[90].tail_ms > 60_000
    assert simulated.minutes[-1].tail_ms < 40


def test_a_queue_time_rule_grows_where_requests_wait() -> None:
    """From one replica to enough."""
    simulated = day(ScalingRule("queue time", 0.2), of_shape("steady", RATE, noisy=False))
    needed = terms().fixed - 1
    assert 0.6 * needed <= simulated.minutes[-1].ready <= 2 * needed + 2
    assert simulated.minutes[-1].tail_ms <= 40
