"""Axes: round numbers inside, in the right place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonkit.repository.report.scale import linear_axis, log_axis


def test_a_logarithmic_axis_puts_the_middle_of_two_numbers_at_their_mean_product() -> None:
    """1, 10 and 100 are equally far apart, and all three lie inside."""
    axis = log_axis(1, 100, 0, 200)
    assert axis.at(10) == pytest.approx(100)
    assert axis.at(10) - axis.at(1) == pytest.approx(axis.at(100) - axis.at(10))
    assert axis.at(1) > 0
    assert axis.at(100) < 200


def test_ticks_of_a_wide_range_are_powers_and_of_a_narrow_one_round_numbers() -> None:
    """Nobody reads 0.0437 on an axis."""
    assert [text for _, text in log_axis(0.01, 1000, 0, 100).ticks][:3] == ["0.01", "0.1", "1"]
    assert [text for _, text in log_axis(0.05, 0.06, 0, 100).ticks] == ["0.045", "0.050", "0.055", "0.060", "0.065"]
    assert [text for _, text in linear_axis(0.9722, 0.9861, 100, 0).ticks] == ["0.975", "0.980", "0.985"]


@given(st.floats(1e-6, 1e5), st.floats(1, 1e6))
def test_every_logarithmic_axis_has_a_few_ticks_between_its_ends(low: float, ratio: float) -> None:
    """Also where all variants are equally fast."""
    axis = log_axis(low, low * ratio, 10, 400)
    assert 2 <= len(axis.ticks) <= 16
    assert all(10 <= at <= 400 for at, _ in axis.ticks)
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_every_linear_axis_has_a_few_ticks_between_its_ends(low: float, span: float) -> None:
    """Also where all variants are equally good, upside down as the pixels of a screen run."""
    axis = linear_axis(low, low + span, 400, 10)
    assert 2 <= len(axis.ticks) <= 16
    assert all(10 <= at <= 400 for at, _ in axis.ticks)
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)
