"""Days under Kubernetes' autoscaler, and the page that shows them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tools.autoscaled_day import AutoscaledDay, Lag, MeasuredReplica, Targets, autoscaled_day
from tools.autoscaler import Behavior
from tools.autoscaling_page import main
from tritonkit.perf.plan import Fleet, Traffic, curve
from tritonkit.perf.plan.traffic import STEP_S
from tritonkit.perf.simulation import Costs, SimulatedBatcher

HELD = 300.0


@cache
def replica() -> MeasuredReplica:
    """One that does 400 requests a second at most."""
    fleet = Fleet(SimulatedBatcher(1, 8), Costs(0.004, 0.002, 0.001, 0.2))
    return MeasuredReplica(fleet, curve(fleet))


def run(rates: list[float], lag: Lag | None = None, most: int = 10) -> AutoscaledDay:
    """Some hours of CPU 60 %, from one replica on."""
    return autoscaled_day(
        Traffic("a test", np.array(rates)),
        replica(),
        Targets(cpu=0.6),
        behavior=Behavior(),
        lag=lag or Lag(),
        target_ms=100,
        held_per_s=HELD,
        least=1,
        most=most,
    )


HOUR = int(3600 / STEP_S)


def test_without_traffic_it_stays_at_the_least() -> None:
    """And pays for one."""
    day = run([1.0] * HOUR)
    assert (day.changes, day.flaps, day.late) == (0, 0, 0)
    assert day.replica_hours == pytest.approx(1)


def test_it_grows_with_a_step_and_shrinks_after_it() -> None:
    """From one to some and back to one; too few for a while."""
    day = run([20.0] * HOUR + [1500.0] * HOUR + [20.0] * HOUR)
    assert day.replicas[HOUR - 1] == 1
    assert day.replicas[2 * HOUR - 1] >= 5
    assert day.replicas[-1] == 1
    assert day.lag_s > 0


def test_slower_pods_make_more_requests_late() -> None:
    """Replicas that start late answer late."""
    rates = [20.0] * HOUR + [1500.0] * HOUR
    quick, slow = run(rates, Lag(start_s=5)), run(rates, Lag(start_s=300))
    assert slow.late > quick.late
    assert slow.lag_s > quick.lag_s


def test_never_more_than_the_most() -> None:
    """Then requests wait."""
    day = run([2000.0] * HOUR, most=3)
    assert max(day.replicas) == 3
    assert day.late > 0.9


@pytest.mark.slow
def test_the_page_is_current() -> None:
    """Table and plot are what the tool writes."""
    assert main(["--check"]) == 0
