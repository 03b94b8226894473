"""Batch sizes of a model on a GPU, read from its configuration."""

from __future__ import annotations

from typing import Any

import pytest
from backend_config import ModelError, TensorSpec
from pytorch_sizes import Sizes, free_inputs, read_sizes


def config(largest: int, *sizes: int, graphs: bool) -> dict[str, Any]:
    """A configuration as Triton gives it."""
    specs = [{"batch_size": size, "input": {}} for size in sizes]
    return {"max_batch_size": largest, "optimization": {"cuda": {"graphs": graphs, "graph_spec": specs}}}


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"max_batch_size": 8}, Sizes()),
        ({"max_batch_size": 8, "optimization": {}}, Sizes()),
        (config(8, graphs=False), Sizes()),
        (config(8, graphs=True), Sizes((1, 2, 4, 8), True)),
        (config(12, graphs=True), Sizes((1, 2, 4, 8, 12), True)),
        (config(1, graphs=True), Sizes((1,), True)),
        (config(8, 8, 1, 4, 8, graphs=True), Sizes((1, 4, 8), True)),
        (config(8, 2, 8, graphs=False), Sizes((2, 8), False)),
        (config(0, graphs=True), Sizes((0,), True)),
        (config(0, 0, graphs=True), Sizes((0,), True)),
    ],
)
def test_sizes_of_a_configuration(given: dict[str, Any], sizes: Sizes) -> None:
    """Listed sizes, or powers of 2 and the largest batch."""
    assert read_sizes(given) == sizes


@pytest.mark.parametrize(("largest", "size", "bounds"), [(8, 9, "1 to 8"), (8, 0, "1 to 8"), (0, 1, "0 to 0")])
def test_a_size_that_no_batch_has_is_refused(largest: int, size: int, bounds: str) -> None:
    """The message has the size and the bounds."""
    with pytest.raises(ModelError, match=f"graph_spec: found batch_size {size}, wanted {bounds}"):
        read_sizes(config(largest, size, graphs=True))


def test_sizes_end_with_the_largest_batch() -> None:
    """Each batch fits one, as in the native backend."""
    with pytest.raises(ModelError, match="graph_spec: the largest batch_size is 4, wanted 8, the max_batch_size"):
        read_sizes(config(8, 1, 4, graphs=True))


def test_shapes_of_inputs_are_refused() -> None:
    """Triton's schema has them for other backends."""
    given = config(8, 8, graphs=True)
    given["optimization"]["cuda"]["graph_spec"][0]["input"] = {"x": {"dim": ["3"]}}
    with pytest.raises(ModelError, match="graph_spec: input found; wanted batch_size alone"):
        read_sizes(given)


def test_batches_are_rounded_up() -> None:
    """To the next size; without one that is large enough they stay."""
    sizes = Sizes((1, 4, 16))
    assert [sizes.rounded(rows) for rows in (0, 1, 2, 4, 5, 16, 17)] == [1, 1, 4, 4, 16, 16, 17]
    assert Sizes().rounded(3) == 3


def test_inputs_with_a_free_axis_are_named() -> None:
    """The batch axis is not one of them."""
    specs = {"x": TensorSpec("x", "FP32", (-1, 3)), "ids": TensorSpec("ids", "INT64", (-1, -1))}
    assert free_inputs(specs, batched=True) == ["ids"]
    assert free_inputs(specs, batched=False) == ["x", "ids"]
