"""The number of users, second by second."""

from __future__ import annotations

import pytest

from tritonkit.perf.load import SHAPES, users_at


def over_a_run(shape: str, users: int = 8, duration_s: int = 20) -> list[int | None]:
    """Users in the middle of each second."""
    return [users_at(shape, second + 0.5, users, duration_s) for second in range(duration_s)]


def test_steady_has_all_users_throughout() -> None:
    """And without a duration for ever."""
    assert set(over_a_run("steady")) == {8}
    assert users_at("steady", 1e6, 8, None) == 8


def test_ramp_rises_to_all_users_and_stays() -> None:
    """From one, never falling, at the most for the last fifth."""
    users = over_a_run("ramp")
    assert users[0] == 1
    assert users == sorted(users)
    assert set(users[16:]) == {8}
    assert len(set(users)) == 8


def test_spike_has_all_users_in_the_middle_fifth_alone() -> None:
    """A tenth before and after, rounded, at least one."""
    users = over_a_run("spike")
    assert users == [1] * 8 + [8] * 4 + [1] * 8


def test_step_goes_up_in_quarters() -> None:
    """Four equal steps."""
    assert over_a_run("step") == [2] * 5 + [4] * 5 + [6] * 5 + [8] * 5


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_ends_and_has_at_least_one_user(shape: str) -> None:
    """With one user, at the start, before the end and after it."""
    assert users_at(shape, 0.0, 1, 5) == 1
    assert users_at(shape, 4.99, 1, 5) == 1
    assert users_at(shape, 5.0, 1, 5) is None
