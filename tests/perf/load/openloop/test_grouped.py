"""Items put into groups as a client's batching does, and the search for the rate that they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonkit.perf.load.openloop.grouped import climb, group

MOMENTS = st.lists(st.floats(0, 10), min_size=1, max_size=60).map(lambda m: np.array(sorted(m)))


def test_a_full_group_leaves_with_its_last_item() -> None:
    """The third of three items in groups of two waits, alone, for the delay."""
    groups = group(np.array([0.0, 1.0, 1.5]), 2, 2.0)
    assert groups.closes.tolist() == [1.0, 3.5]
    assert groups.sizes.tolist() == [2, 1]
    assert groups.of_item.tolist() == [0, 0, 1]


def test_a_group_that_does_not_fill_leaves_when_its_first_item_has_waited() -> None:
    """An item that comes at that very moment is in it; the next one begins another."""
    groups = group(np.array([1.0, 1.5, 2.0, 2.25]), 8, 1.0)
    assert groups.closes.tolist() == [2.0, 3.25]
    assert groups.sizes.tolist() == [3, 1]


def test_without_a_delay_only_items_of_one_moment_go_together() -> None:
    """Groups hold the largest number that fits."""
    groups = group(np.array([1.0, 1.0, 1.0, 2.0]), 2, 0.0)
    assert groups.closes.tolist() == [1.0, 1.0, 2.0]
    assert groups.sizes.tolist() == [2, 1, 1]


def test_items_of_other_kinds_go_in_other_groups() -> None:
    """In the order in which the groups close, whichever began first."""
    arrivals, kinds = np.array([0.0, 0.1, 0.2, 0.3]), np.array([5, 3, 3, 5])
    groups = group(arrivals, 2, 1.0, kinds)
    assert groups.closes.tolist() == [0.2, 0.3]
    assert groups.kinds.tolist() == [3, 5]
    assert groups.of_item.tolist() == [1, 0, 0, 1]


@given(MOMENTS, st.integers(1, 8), st.floats(0, 3), st.integers(1, 3), st.integers(0, 9))
def test_every_item_is_in_one_group_that_closes_in_time(
    arrivals: np.ndarray, most: int, delay_s: float, kinds: int, seed: int
) -> None:
    """Groups are of one kind, never too large, full or as old as the delay, and in the order of their closing."""
    kind_of = np.random.default_rng(seed).integers(kinds, size=len(arrivals))
    groups = group(arrivals, most, delay_s, kind_of)
    assert (np.diff(groups.closes) >= 0).all()
    assert np.array_equal(np.bincount(groups.of_item, minlength=len(groups.sizes)), groups.sizes)
    for k, (closes, size) in enumerate(zip(groups.closes, groups.sizes, strict=True)):
        own = arrivals[groups.of_item == k]
        assert set(kind_of[groups.of_item == k]) == {groups.kinds[k]}
        assert 1 <= size <= most
        assert own[-1] <= closes <= own[0] + delay_s
        assert closes == (own[-1] if size == most else own[0] + delay_s)
        # Nobody of its kind who came while it was open is in another one.
        there = arrivals[(kind_of == groups.kinds[k]) & (arrivals > own[0]) & (arrivals < closes)]
        assert len(there) <= size


class Limit:
    """Holds up to a rate; but for runs whose number is among `unlucky`."""

    def __init__(self, rate: float, unlucky: tuple[int, ...] = ()) -> None:
        self.rate, self.unlucky = rate, unlucky
        self.tried: list[float] = []

    def __call__(self, rate: float) -> bool:
        """A run."""
        self.tried.append(rate)
        return rate <= self.rate and len(self.tried) not in self.unlucky


@pytest.mark.parametrize("limit", [110.0, 137.0, 300.0, 1000.0])
def test_the_rate_that_is_found_is_close_below_the_highest(limit: float) -> None:
    """Within the search's 5 %, in few runs, three of them at that rate."""
    holds = Limit(limit)
    rate = climb(holds, 100.0, lambda _: True)
    assert limit / 1.06 <= rate <= limit
    assert holds.tried.count(rate) == 3
    assert len(holds.tried) <= 13


def test_the_first_miss_ends_it() -> None:
    """One run, a little above what is known."""
    holds = Limit(104.0)
    assert climb(holds, 100.0, lambda _: True) == 0.0
    assert holds.tried == [105.0]


def test_what_held_once_by_luck_is_not_given() -> None:
    """The further run at the rate misses, so a lower one is."""
    calm = Limit(300.0)
    highest = climb(calm, 100.0, lambda _: True)
    unlucky = Limit(300.0, (len(calm.tried),))
    rate = climb(unlucky, 100.0, lambda _: True)
    assert rate == pytest.approx(highest / 1.05)
    assert unlucky.tried[-2:] == [rate, rate]


def test_nothing_is_given_that_is_not_above_the_known_rate() -> None:
    """However low it would have to go."""
    holds = Limit(1000.0, tuple(range(12, 200)))
    assert climb(holds, 100.0, lambda _: True) == 0.0


@pytest.mark.parametrize("most", [3, 5, 8])
def test_climbing_ends_while_there_is_time_to_make_sure(most: int) -> None:
    """The given rate has held in further runs, also if time is short."""
    holds = Limit(10_000.0)
    rate = climb(holds, 100.0, lambda runs: len(holds.tried) + runs <= most)
    assert rate == holds.tried[-1]
    assert holds.tried.count(rate) == 3
    assert len(holds.tried) == most


def test_without_time_for_three_runs_there_is_none() -> None:
    """And no run either."""
    holds = Limit(10_000.0)
    assert climb(holds, 100.0, lambda runs: runs <= 2) == 0.0
    assert not holds.tried
