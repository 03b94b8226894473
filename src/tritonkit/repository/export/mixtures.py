"""Mixtures of items, also near an edge, where a class, an order or a step changes: elsewhere a coupling may not show.

Pure functions: they are given items, and a function that runs batches. Mixtures of the items are drawn at random. The
distance between two of them is halved several times, on the side where the answer changes more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tritonkit.repository.export.neighbors import join
from tritonkit.repository.export.samples import Batch

__all__ = ["ROWS", "RUNS", "pairs_at_edges"]

ROWS = 16
"""Items of a batch."""
_HALVINGS = 8
"""Number of halvings: few enough to leave a distance far above rounding, enough for ids up to 255 to become
neighbors."""
RUNS = _HALVINGS + 6
"""Batches that run for one seed of `pairs_at_edges`, with the pairs themselves."""
_REACH = 1e6
"""Factor up to which values of other items grow."""


def pairs_at_edges(
    run: Callable[[Batch], Batch], items: Sequence[Batch], seed: int, grows: str = "f"
) -> Iterator[tuple[Batch, Batch, list[int]]]:
    """Two pairs of batches, one of mixtures and one of items near edges: a batch, the same batch with other items in
    some places, and the places of the items that stay.

    `grows` has the kinds of numbers (numpy's `dtype.kind`) that may be far larger in other items.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    low, high = _mixed(random, items), _mixed(random, items)
    for batch in (low, _near_edges(run, low, high)):
        stays = random.random(ROWS) < 0.5
        others = {name: _grown(random, array, grows) for name, array in _mixed(random, items).items()}
        yield batch, _chosen(stays, batch, others), np.flatnonzero(stays).tolist()


def _mixed(random: Any, items: Sequence[Batch]) -> Batch:
    """A batch of items with some values of one item, and zeros or values of another in the other places."""
    import numpy as np

    one, other = (join([items[n] for n in random.integers(0, len(items), ROWS)]) for _ in range(2))
    zeros = {n: a if a.dtype == object else np.zeros_like(a) for n, a in other.items()}
    rest = _chosen(random.random(ROWS) < 0.5, zeros, other)
    return {name: np.where(random.random(array.shape) < 0.5, array, rest[name]) for name, array in one.items()}


def _grown(random: Any, array: Any, kinds: str) -> Any:
    """The values times a factor for each row, which may be negative for floats."""
    import numpy as np

    if array.dtype.kind not in kinds:
        return array
    factors = 10 ** random.uniform(0, math.log10(_REACH), _column(array))
    if array.dtype.kind == "f":
        factors *= random.choice([-1.0, 1.0], _column(array))
        with np.errstate(over="ignore"):
            return (array * factors).astype(array.dtype)
    # The product with a factor is taken in float64: half of the range stays a whole number of the type.
    info, part = np.iinfo(array.dtype), 1 if array.dtype.itemsize == 1 else 2
    return np.clip(array * factors, info.min // part, info.max // part).astype(array.dtype)


def _near_edges(run: Callable[[Batch], Batch], low: Batch, high: Batch) -> Batch:
    """Items between those of two batches; each is close to an item with another answer if there is an edge."""
    first, last = run(low), run(high)
    for _ in range(_HALVINGS):
        middle = {name: _between(low[name], high[name]) for name in low}
        between = run(middle)
        left = _distance(first, between) > _distance(between, last)
        low, first = _chosen(left, low, middle), _chosen(left, first, between)
        high, last = _chosen(left, middle, high), _chosen(left, between, last)
    return low


def _between(one: Any, other: Any) -> Any:
    """Values halfway between two others; texts and truth values are returned unchanged."""
    import numpy as np

    if one.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            return (one + (other - one) / 2).astype(one.dtype)
    if one.dtype.kind not in "iu":
        return one
    return (one + (other.astype(np.int64) - one) // 2).astype(one.dtype)


def _distance(one: Batch, other: Batch) -> Any:
    """Distance between two answers in each row: of floats, and the number of discrete values that differ."""
    import numpy as np

    total = np.zeros(ROWS)
    for name, array in one.items():
        a, b = array.reshape(ROWS, -1), other[name].reshape(ROWS, -1)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(a.astype(float) - b) if a.dtype.kind == "f" else a != b
            total += np.nan_to_num(apart.astype(float)).sum(axis=1)
    return total


def _chosen(rows: Any, one: Mapping[str, Any], other: Mapping[str, Any]) -> Batch:
    """The chosen rows of one batch, with the rows of another batch in the other places."""
    import numpy as np

    return {n: np.where(rows.reshape(_column(a)), a, other[n]) for n, a in one.items()}


def _column(array: Any) -> tuple[int, ...]:
    """The shape [rows, 1, ...] of an array with one value for each row."""
    return (len(array), *(1,) * (array.ndim - 1))
