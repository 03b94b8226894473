"""Replicas behind a balancer: who gets a request, and what comes of a replica that goes down."""

from __future__ import annotations

import numpy as np
import pytest

from tritonkit.perf.load.openloop import Arrivals, draw
from tritonkit.perf.simulation import BALANCING, Balancing, Costs, Outage, SimulatedBatcher, simulate, simulate_fleet

COSTS = Costs(0.008, 0.002, spread=0.3)
ONE = SimulatedBatcher(1, 1)


def tail(balancing: Balancing, load: float = 0.8) -> float:
    """p99 of four replicas in milliseconds."""
    moments = draw(Arrivals(seed=2), 400.0 * load, 60.0)
    return simulate_fleet(moments, ONE, COSTS, 4, balancing).percentile_ms(99)


def test_one_replica_is_a_server() -> None:
    """Whatever the balancer."""
    moments = draw(Arrivals(seed=1), 70.0, 20.0)
    alone = simulate(moments, SimulatedBatcher(2, 4), COSTS).latency_s
    for balancing in BALANCING:
        simulated = simulate_fleet(moments, SimulatedBatcher(2, 4), COSTS, 1, balancing)  # type: ignore[arg-type]
        assert (simulated.latency_s == alone).all()


def test_the_less_chance_the_shorter_the_queues() -> None:
    """Random choice is worst; turns are better; the one with fewer requests of two is best."""
    assert tail("random") > tail("round_robin") > tail("least_request")


def test_replicas_by_chance_are_servers_with_their_share_of_the_rate() -> None:
    """Poisson arrivals split by chance are Poisson: M/M/1 at the same load, within noise."""
    moments = draw(Arrivals(seed=2), 280.0, 300.0)
    split = simulate_fleet(moments, ONE, Costs(0.01, 0.0, spread=1.0), 4, "random")
    assert 1e3 * split.latency_s.mean() == pytest.approx(33.3, rel=0.06)
    assert split.busy == pytest.approx(0.7, rel=0.03)
    assert split.batch == 1


def test_what_a_replica_had_is_answered_by_others() -> None:
    """Its requests take longer, none is lost, and the others do all the work until it is back."""
    moments = np.arange(0.0, 9.0, 0.01)
    outage = Outage(0, 3.0, 6.0)
    up = simulate_fleet(moments, ONE, COSTS, 2, "least_request", seed=1)
    down = simulate_fleet(moments, ONE, COSTS, 2, "least_request", outages=[outage], seed=1)
    assert len(down.latency_s) == len(moments)
    assert (down.latency_s > 0).all()
    amid = (moments >= 3) & (moments < 6)
    before = moments < 2.9
    assert down.latency_s[before] == pytest.approx(up.latency_s[before])
    assert down.latency_s[amid].mean() > 1.3 * up.latency_s[amid].mean()


@pytest.mark.parametrize("balancing", BALANCING)
def test_requests_wait_where_no_replica_is_up(balancing: Balancing) -> None:
    """For the first one that comes back."""
    both = [Outage(0, 1.0, 3.0), Outage(1, 1.0, 2.0)]
    simulated = simulate_fleet([1.5], ONE, Costs(0.01, 0.0, spread=0.0), 2, balancing, outages=both)
    assert simulated.latency_s == pytest.approx([0.51])


def test_instances_that_share_cores_slow_each_other() -> None:
    """A single run takes its time; two together, on cores that one can fill, take twice as long."""
    costs = Costs(0.01, 0.0, spread=0.0, contention=2.0)
    alone = simulate([0.0, 1.0], SimulatedBatcher(2, 1), costs).latency_s
    at_once = simulate([0.0, 0.0], SimulatedBatcher(2, 1), costs).latency_s
    later = simulate([0.0, 0.005], SimulatedBatcher(2, 1), costs).latency_s
    assert alone == pytest.approx([0.01, 0.01])
    assert at_once == pytest.approx([0.02, 0.02])
    assert later == pytest.approx([0.015, 0.015])
    assert costs.capacity(SimulatedBatcher(2, 1)) == pytest.approx(100)
