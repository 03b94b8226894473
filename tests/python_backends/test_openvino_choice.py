"""The batches that are padded, for given times and for measured ones."""

from __future__ import annotations

import time

import pytest
from openvino_choice import LONGEST_S, Choice, measure


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
    """In real runs of known length, forms of their own size are kept if they were faster."""
    choice = measure((1, 2, 4), lambda _: time.sleep(0.003), lambda n: time.sleep(0.001 * n * n))
    assert set(choice.free) == {1, 2, 4}
    assert set(choice.fixed) == {1}
    assert choice.size_for(1) == 1
    assert choice.size_for(2) is None


def test_first_runs_do_not_count() -> None:
    """The first run of a form compiles it."""
    seen: set[int] = set()

    def fixed(size: int) -> None:
        time.sleep(0.0 if size in seen else 0.05)
        seen.add(size)

    assert set(measure((1, 2), lambda _: time.sleep(0.003), fixed).fixed) == {1, 2}


def test_long_runs_are_judged_by_shorter_ones() -> None:
    """A batch expected to take longer than the limit is not run; it is judged as the size below it."""
    ran = []

    def free(size: int) -> None:
        ran.append(size)
        time.sleep(size * LONGEST_S / 20)

    choice = measure((1, 64), free, lambda size: time.sleep(size * LONGEST_S / 100))
    assert set(ran) == {1}
    assert choice.size_for(64) == 64
    assert choice.free[64] == pytest.approx(64 * choice.free[1])
