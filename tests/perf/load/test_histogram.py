"""Times in buckets: percentiles close to the exact ones, parts that add up."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tritonkit.perf.load import Histogram

TIMES = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=200)


def filled(times: list[float]) -> Histogram:
    """A histogram of these times in ms."""
    histogram = Histogram()
    for ms in times:
        histogram.add(ms)
    return histogram


@settings(deadline=None)
@given(TIMES, st.sampled_from([50.0, 95.0, 99.0, 100.0]))
def test_percentiles_are_within_a_percent_of_the_nearest_rank(times: list[float], percent: float) -> None:
    """Held against the sorted list, for any times between 10 us and 1,000 s."""
    exact = sorted(times)[math.ceil(percent / 100 * len(times)) - 1]
    estimate = filled(times).percentile(percent)
    assert estimate is not None
    assert abs(estimate - exact) <= 0.01 * exact


@settings(deadline=None)
@given(TIMES, TIMES)
def test_merging_is_counting_both(first: list[float], second: list[float]) -> None:
    """Two parts merged give the counts, the largest and the percentiles of the whole."""
    whole, merged = filled(first + second), filled(first)
    merged.merge(filled(second))
    assert merged.counts() == whole.counts()
    assert merged.largest_ms == whole.largest_ms == max(first + second)
    assert merged.percentile(95) == whole.percentile(95)


def test_nothing_has_no_percentile() -> None:
    """An empty histogram says so instead of giving 0."""
    assert Histogram().percentile(50) is None
    assert len(Histogram()) == 0


def test_it_is_restored_from_its_counts() -> None:
    """The master has exactly the counts that a worker sends."""
    times = list(np.random.default_rng(0).exponential(5, 1000))
    sent = filled(times)
    assert Histogram(sent.counts(), sent.largest_ms).percentile(99) == sent.percentile(99)


def test_times_below_a_microsecond_are_counted() -> None:
    """A clock that did not move between two looks gives a time of 0, which has no logarithm."""
    assert len(filled([0.0, 0.0])) == 2
