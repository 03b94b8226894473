"""The simulated batcher: Triton's rules, and what queueing theory says of the simplest queues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritonkit.perf.load.openloop import Arrivals, draw
from tritonkit.perf.simulation import Costs, SimulatedBatcher, fit, highest_rate, simulate

EXACT = Costs(0.010, 0.0, spread=0.0)


def latencies_ms(moments: list[float], batcher: SimulatedBatcher, costs: Costs = EXACT) -> list[float]:
    """Rounded, of each request."""
    simulated = simulate(moments, batcher, costs).latency_s
    return [round(1e3 * latency_s, 1) for latency_s in simulated.tolist()]


def test_a_queue_of_one_server_is_as_long_as_theory_says() -> None:
    """M/M/1 and M/D/1 at 70 % of capacity: the mean wait by Pollaczek and Khinchine, within 5 %."""
    moments = draw(Arrivals(seed=4), 70.0, 4000.0)
    for spread, wait_ms in ((1.0, 23.33), (0.0, 11.67)):
        simulated = simulate(moments, SimulatedBatcher(1, 1), Costs(0.010, 0.0, spread=spread))
        assert 1e3 * simulated.latency_s.mean() - 10 == pytest.approx(wait_ms, rel=0.06)
        assert simulated.busy == pytest.approx(0.7, rel=0.03)
        assert simulated.batch == 1


def test_what_waits_leaves_together_when_an_instance_is_free() -> None:
    """Without a delay nobody waits for others, only for an instance."""
    assert latencies_ms([0, 0.001, 0.002, 0.003], SimulatedBatcher(1, 8)) == [10, 19, 18, 17]
    assert latencies_ms([0, 0.001, 0.002, 0.003], SimulatedBatcher(1, 2)) == [10, 19, 18, 27]
    assert latencies_ms([0, 0.001, 0.002, 0.003], SimulatedBatcher(2, 8)) == [10, 10, 18, 17]


def test_a_delay_holds_the_oldest_back_for_others() -> None:
    """Until it is over, or the batch is as large as may be or as is preferred."""
    slow = SimulatedBatcher(1, 4, delay_s=0.005)
    assert latencies_ms([0, 0.001], slow) == [15, 14]
    assert latencies_ms([0, 0.001, 0.002, 0.003], slow) == [13, 12, 11, 10]
    preferred = SimulatedBatcher(1, 8, (2,), 0.005)
    assert latencies_ms([0, 0.001, 0.1], preferred) == [11, 10, 15]


def test_of_several_preferred_sizes_the_largest_that_can_be_filled_leaves() -> None:
    """The others go on waiting."""
    batcher = SimulatedBatcher(1, 8, (2, 4), 0.0)
    # While the first runs, five come: four leave together, then one.
    assert latencies_ms([0, 0.001, 0.001, 0.001, 0.001, 0.001], batcher) == [10, 19, 19, 19, 19, 29]


@settings(deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 16),
    st.sets(st.integers(1, 16), max_size=3),
    st.floats(0, 0.01),
    st.integers(0, 100),
)
def test_every_request_is_served_once_and_not_before_it_came(
    instances: int, most: int, preferred: set[int], delay_s: float, seed: int
) -> None:
    """Whatever the settings: no latency below a run, no batch above the largest."""
    moments = draw(Arrivals("bursty", 3.0, seed=seed), 300.0, 0.5)
    sizes = tuple(sorted(size for size in preferred if size <= most))
    simulated = simulate(moments, SimulatedBatcher(instances, most, sizes, delay_s), EXACT)
    assert len(simulated.latency_s) == len(moments)
    assert not len(moments) or simulated.latency_s.min() >= 0.010 - 1e-9
    assert simulated.batch <= most


def test_heavier_requests_take_longer() -> None:
    """A run takes the weights of its items together; they are drawn from those that there are."""
    costs = Costs(0.0, 0.010, spread=0.0, weights=(0.5, 2.0))
    simulated = simulate(np.arange(100.0), SimulatedBatcher(1, 1), costs)
    took = set((1e3 * simulated.latency_s).round().tolist())
    assert took == {5, 20}


@given(st.floats(1e-4, 0.1), st.floats(1e-5, 0.1))
def test_costs_are_found_again(fixed: float, item: float) -> None:
    """From runs of known sizes."""
    sizes = [1, 2, 4, 8, 16]
    costs = fit(sizes, [fixed + item * size for size in sizes])
    assert costs == pytest.approx((fixed, item), rel=1e-3, abs=1e-6)


def test_costs_are_never_below_zero() -> None:
    """Noise must not give a batch for nothing."""
    assert fit([1, 2, 4], [1.0, 2.2, 4.9]) == (0.0, pytest.approx(1.14, rel=0.1))
    fixed, item = fit([1, 2, 4], [3.0, 2.0, 1.0])
    assert fixed > 0
    assert item > 0
    assert fit([2], [4.0]) == (0.0, 2.0)


def test_the_highest_rate_grows_with_the_target_and_stays_below_capacity() -> None:
    """For a batcher whose batches pay."""
    batcher, costs = SimulatedBatcher(2, 8), Costs(0.004, 0.001)
    rates = [highest_rate(batcher, costs, 99.0, ms, lambda rate, s: draw(Arrivals(), rate, s)) for ms in (1, 8, 20, 50)]
    assert rates[0] == 0
    assert 0 < rates[1] < rates[2] <= rates[3] <= costs.capacity(batcher)
