"""Arrays into a batch and out of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

from tritonkit.client.batching import Item, join_items, layout, split_outputs
from tritonkit.errors import InferenceError

DTYPES = some.sampled_from([np.dtype(name) for name in ("f4", "f8", "i8", "u1", "?", "f2", "O")])


@some.composite
def batches(draw: some.DrawFn) -> list[np.ndarray[Any, Any]]:
    """One to five arrays of one type and shape, leading axis 1."""
    dtype = draw(DTYPES)
    shape = (1, *draw(arrays.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)))
    cells = some.binary(max_size=3) if dtype == np.dtype("O") else None
    one = arrays.arrays(dtype, shape, elements=cells)
    return draw(some.lists(one, min_size=1, max_size=5))


@given(batches())
def test_what_goes_together_comes_apart_the_same(given: list[np.ndarray[Any, Any]]) -> None:
    """Every item gets its own values, type and shape back."""
    items = [Item({"x": array, "y": array}, 0.0) for array in given]
    parts = split_outputs(join_items(items), len(items), "model m")
    for array, part in zip(given, parts, strict=True):
        for name in ("x", "y"):
            assert part[name].dtype == array.dtype
            np.testing.assert_array_equal(part[name], array)


def test_the_parts_of_a_batch_cannot_be_written_to() -> None:
    """Callers share one answer, so each gets a read-only view."""
    parts = split_outputs({"y": np.zeros((2, 3))}, 2, "model m")
    with pytest.raises(ValueError, match="read-only"):
        parts[0]["y"][0, 0] = 1


@pytest.mark.parametrize("shape", [(), (3,), (1, 2)])
def test_an_output_without_the_batch_axis_is_an_error(shape: tuple[int, ...]) -> None:
    """An output that does not hold one row for each item is never handed out wrongly."""
    with pytest.raises(InferenceError, match="output y") as caught:
        split_outputs({"y": np.zeros(shape)}, 2, "model m")
    assert "2" in caught.value.wanted


def test_layouts_are_equal_only_for_what_fits_together() -> None:
    """Name, type and shape count; the order of the inputs does not."""
    one, two = np.zeros((1, 2), np.float32), np.zeros((1, 3), np.float32)
    assert layout({"a": one, "b": two}) == layout({"b": two, "a": one})
    others = [{"a": one}, {"b": one}, {"a": two}, {"a": one.astype(np.float64)}]
    assert len({layout(other) for other in others}) == len(others)
