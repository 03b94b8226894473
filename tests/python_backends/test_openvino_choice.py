"""The batches that are padded, for given times and for measured ones."""

from __future__ import annotations

import pytest
from openvino_choice import LONGEST_S, Choice, measure


class Clock:
    """A clock that only runs move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Seconds since it was made."""
        return self.now_s

    def run(self, seconds: float) -> None:
        """A run of this length."""
        self.now_s += seconds


@pytest.mark.parametrize(
    ("count", "size"),
    [
        (1, 1),
        (2, None),  # 2 items at any size take 1.43 s, 8 items at their own 4 s
        (5, None),
        (6, 8),  # 4.29 s
        (8, 8),
        (9, None),  # no form is large enough
        (16, None),
    ],
)
def test_padding_is_for_batches_that_gain(count: int, size: int | None) -> None:
    """A batch goes to the next compiled size if that takes less than the batch at any size would."""
    choice = Choice(free={1: 5 / 7, 8: 40 / 7, 16: 80 / 7}, fixed={1: 0.5, 8: 4.0})
    assert choice.size_for(count) == size


def test_one_size_alone() -> None:
    """With a single size tried, that is what everything is compared with."""
    assert Choice({1: 2.0}, {1: 1.0}).size_for(1) == 1
    assert Choice({4: 2.0}, {4: 3.0}).size_for(2) is None
    assert Choice().size_for(1) is None


def test_forms_that_gain_are_kept() -> None:
    """Forms of their own size are kept if they were faster."""
    clock = Clock()
    choice = measure((1, 2, 4), lambda _: clock.run(0.003), lambda size: clock.run(0.001 * size * size), clock)
    assert set(choice.free) == {1, 2, 4}
    assert set(choice.fixed) == {1}
    assert choice.size_for(1) == 1
    assert choice.size_for(2) is None


def test_first_runs_do_not_count() -> None:
    """The first run of a form compiles it."""
    clock = Clock()
    compiled: set[int] = set()

    def fixed(size: int) -> None:
        clock.run(0.002 if size in compiled else 0.05)
        compiled.add(size)

    assert set(measure((1, 2), lambda _: clock.run(0.003), fixed, clock).fixed) == {1, 2}


def test_long_runs_are_judged_by_shorter_ones() -> None:
    """A batch expected to take longer than the limit is not run; it is judged as the size below it."""
    clock = Clock()
    sizes = []

    def free(size: int) -> None:
        sizes.append(size)
        clock.run(size * LONGEST_S / 20)

    choice = measure((1, 64), free, lambda size: clock.run(size * LONGEST_S / 100), clock)
    assert set(sizes) == {1}
    assert choice.size_for(64) == 64
    assert choice.free[64] == pytest.approx(64 * choice.free[1])


def test_slow_rounds_are_few() -> None:
    """Rounds end with the one that exceeds the budget."""
    clock = Clock()
    sizes = []

    def free(size: int) -> None:
        sizes.append(size)
        clock.run(4 * LONGEST_S)

    measure((1,), free, lambda _: clock.run(0.1), clock)
    assert len(sizes) == 3  # to compile, to judge, and one round
