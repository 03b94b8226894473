"""The check of a served model's batches: what it sends, what it finds, and what it says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tritonkit.client import Client
from tritonkit.errors import UsageError
from tritonkit.perf.diagnose import BatchingCheck, check_batching
from tritonkit.testing import FakeModel, MemoryTransport

WIDTH = 3
ITEMS = np.random.default_rng(0).standard_normal((6, WIDTH)).astype(np.float32)


def checked(compute: Callable[[Any], Any], items: Any = ITEMS, **more: Any) -> BatchingCheck:
    """The check of a model in memory."""
    tensor = ("FP32", [WIDTH])
    model = FakeModel(
        {"x": tensor}, {"y": tensor}, lambda inputs: {"y": np.asarray(compute(inputs["x"]), np.float32)}, **more
    )
    with Client(transport=MemoryTransport({"m": model})) as client:
        return check_batching(client, "m", {"x": items})


def test_independent_items() -> None:
    """Every arrangement is named, and nothing is to be done."""
    check = checked(lambda x: 2 * x)
    assert (check.verdict, check.items, check.change) == ("independent", 6, "")
    assert check.arrangements == ("pairs", "6 together", "6 shuffled", "6, one replaced", "256 requests of 16 callers")


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x - x.mean(0),
        lambda x: np.cumsum(x, 0),
        lambda x: x / np.linalg.norm(x, axis=0, keepdims=True),
        lambda x: np.round(x / np.abs(x).max() * 7) * np.abs(x).max() / 7,
        lambda x: x + 100 * (len(x) > 4),
    ],
)
def test_coupled_items(compute: Callable[[Any], Any]) -> None:
    """The output, the item and the difference are named, with what to do."""
    check = checked(compute)
    assert check.verdict == "coupled"
    assert "max_batch_size: 0" in check.change
    for coupling in check.couplings:
        assert coupling.output == "y"
        assert 0 <= coupling.item < len(ITEMS)
        assert coupling.difference is not None
        assert coupling.difference > 0
        assert 0 < coupling.differing <= coupling.compared
    assert check.to_dict()["couplings"][0]["output"] == "y"


def test_the_difference_is_the_largest_one() -> None:
    """The report names the item that moved most and compares it with its answer alone."""
    items = np.array([[1, 0, 0], [3, 0, 0]], np.float32)
    check = checked(lambda x: x + x.sum() - x.sum(1, keepdims=True), items)
    coupling = check.couplings[0]
    assert (coupling.arrangement, coupling.item) == ("pairs", 0)
    assert (coupling.difference, coupling.largest) == (3.0, 1.0)
    assert (coupling.differing, coupling.compared) == (4, 4)


def test_a_model_that_is_not_repeatable_says_nothing_of_batches() -> None:
    """Each answer is another one, alone too."""
    count = itertools.count()
    assert checked(lambda x: x + next(count)).verdict == "not-repeatable"


def test_batches_that_are_refused() -> None:
    """The model's own words are told."""

    def alone(x: Any) -> Any:
        if len(x) > 1:
            raise ValueError("one item only")
        return x

    check = checked(alone)
    assert check.verdict == "batches-refused"
    assert "one item only" in check.found


def test_a_model_without_batches_is_called_by_many() -> None:
    """Nothing else can join its requests."""
    check = checked(lambda x: x, max_batch_size=0)
    assert check.verdict == "independent"
    assert check.arrangements == ("256 requests of 16 callers",)
    assert "max_batch_size" in check.found


@pytest.mark.parametrize("items", [ITEMS[:1], ITEMS[[0, 0, 0]]])
def test_equal_items_are_refused(items: Any) -> None:
    """They would be independent of anything."""
    with pytest.raises(UsageError, match=r"1 different item\n.*at least two different ones"):
        checked(lambda x: x - x.mean(0), items)
