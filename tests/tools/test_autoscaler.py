"""The autoscaler's arithmetic on cases that Kubernetes documents."""

from __future__ import annotations

import pytest

from tools.autoscaler import Autoscaler, Behavior, Direction, Policy, Reading


@pytest.mark.parametrize(
    ("value", "target", "replicas"),
    [(200, 100, 8), (50, 100, 2), (109, 100, 4), (91, 100, 4), (111, 100, 5), (89, 100, 4)],
)
def test_a_metric_over_its_target_wants_in_proportion(value: float, target: float, replicas: int) -> None:
    """Twice the target: twice the replicas; within 10 % nothing; rounded up."""
    assert Reading(value, target, "Value").replicas(4, 4) == replicas


def test_what_adds_up_is_divided_by_one_replicas_target() -> None:
    """However many there are."""
    assert Reading(100, 8, "AverageValue").replicas(4, 4) == 13
    assert Reading(100, 8, "AverageValue").replicas(4, 1) == 13
    assert Reading(33, 8, "AverageValue").replicas(4, 4) == 4


def test_replicas_that_start_count_as_idle_for_utilization() -> None:
    """The work of starting replicas is not counted twice."""
    assert Reading(1.0, 0.5, "Utilization").replicas(4, 2) == 4
    assert Reading(1.0, 0.5, "Utilization").replicas(4, 4) == 8
    assert Reading(1.5, 0.5, "Utilization").replicas(4, 2) == 6


def test_the_metric_that_wants_most_decides() -> None:
    """One of two."""
    low, high = Reading(50, 100, "Value"), Reading(300, 100, "Value")
    assert Autoscaler(1, 100).decide(0, 2, 2, [low, high]) == 6


def test_by_default_it_doubles_or_adds_four_in_15_seconds() -> None:
    """The more of both."""
    scaler, flood = Autoscaler(1, 1000), [Reading(1e4, 1, "AverageValue")]
    assert scaler.decide(0, 1, 1, flood) == 5
    assert scaler.decide(15, 5, 5, flood) == 10
    assert scaler.decide(30, 10, 10, flood) == 20


def test_a_periods_limit_holds_over_all_its_looks() -> None:
    """Four in a minute, not at every look."""
    scaler = Autoscaler(1, 100, Behavior(up=Direction(0, (Policy("Pods", 4, 60),))))
    counts, count = [], 10
    for look in range(9):
        count = scaler.decide(15 * look, count, count, [Reading(1000, 1, "AverageValue")])
        counts.append(count)
    assert counts == [14, 14, 14, 14, 18, 18, 18, 18, 22]


def test_it_shrinks_by_ten_per_cent_as_documented() -> None:
    """From 80 replicas, 10 % a minute and five at least: `behavior` in Kubernetes' documentation."""
    down = Direction(0, (Policy("Percent", 10, 60), Policy("Pods", 5, 60)))
    scaler, count, counts = Autoscaler(10, 100, Behavior(down=down)), 80, []
    for minute in range(5):
        count = scaler.decide(60 * minute, count, count, [Reading(10, 1, "AverageValue")])
        counts.append(count)
    assert counts == [72, 64, 57, 51, 45]


def test_down_only_to_the_most_that_was_wanted_in_the_window() -> None:
    """A dip is not followed."""
    scaler = Autoscaler(1, 100)
    assert scaler.decide(0, 10, 10, [Reading(10, 1, "AverageValue")]) == 10
    assert scaler.decide(15, 10, 10, [Reading(2, 1, "AverageValue")]) == 10
    assert scaler.decide(300, 10, 10, [Reading(2, 1, "AverageValue")]) == 10
    assert scaler.decide(316, 10, 10, [Reading(2, 1, "AverageValue")]) == 2


def test_up_only_to_the_least_that_was_wanted_in_the_window() -> None:
    """A spike shorter than the window is not followed."""
    scaler = Autoscaler(1, 100, Behavior(up=Direction(60)))
    counts = [
        scaler.decide(15 * look, 2, 2, [Reading(value, 1, "AverageValue")])
        for look, value in enumerate([2, 9, 9, 2, 9, 9, 9, 9, 9])
    ]
    assert counts == [2, 2, 2, 2, 2, 2, 2, 2, 9]


def test_bounds_and_a_direction_that_is_off() -> None:
    """Least, most, Disabled."""
    assert Autoscaler(3, 8).decide(0, 5, 5, [Reading(99, 1, "AverageValue")]) == 8
    calm = Behavior(down=Direction(0))
    assert Autoscaler(3, 8, calm).decide(0, 5, 5, [Reading(0, 1, "AverageValue")]) == 3
    off = Behavior(down=Direction(0, (Policy("Pods", 1, 15),), "Disabled"))
    assert Autoscaler(3, 8, off).decide(0, 5, 5, [Reading(0, 1, "AverageValue")]) == 5
