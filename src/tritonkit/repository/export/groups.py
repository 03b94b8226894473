"""Groups of a network's output columns that are judged on their own, found from the reference's values.

One output may hold quantities of very different size: boxes in pixels next to scores between 0 and 1. If they are
compared as one vector, the large values hide an error in the small ones. So each group's errors are compared with the
variance of that group. Columns are the positions along the one axis that separates the quantities best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tritonkit.repository.export.samples import Batch

__all__ = ["Group", "as_rows", "find_groups", "finite", "is_number"]

_APART = 8.0
"""Spreads that differ by this factor belong to different quantities: on one 8-bit scale the smaller one would
lose 3 bits."""
_FEWEST = 4
"""Fewest values in a column for an estimate of its spread."""
_CENTERED = 32
"""Fewest values in a column that is compared with its own mean."""
_FEW_COLUMNS = 16
"""At most this many columns of similar spread and very different means are different quantities, such as
temperature and pressure. A larger number is one quantity, such as the scores of classes."""
_STILL = 1e-4
"""A column that varies by less than this share of its size counts as constant."""
_LIKELY = 0.1
"""A column between 0 and 1 that never reaches this is the score of a class that does not occur in the samples.
It is grouped with the scores of classes that do."""


@dataclass(frozen=True)
class Group:
    """Some columns of one output, and the energy that their errors are compared with."""

    output: str
    axis: int | None = None
    """Axis of the columns in [items, ...]; None for all values of the output."""
    columns: Any = None
    """int [columns]: positions on that axis."""
    center: Any = 0.0
    """Mean of the reference's values, or the mean of each column (shaped like the group's part of an item); 0 for
    values that do not vary."""
    energy: float = 0.0
    """Square of the typical spread of an item's values around the center. The spreads themselves are averaged, not
    their squares, so that one item of very large values does not hide errors in the others."""
    largest: float = 0.0
    """Largest absolute value of the reference."""
    batched: bool = True

    @property
    def label(self) -> str:
        """`y`, or `y columns 4 to 23 of axis 1 (values up to 0.97)`; axes count as in the output's array."""
        if self.axis is None:
            return self.output
        axis = self.axis if self.batched else self.axis - 1
        columns = _said_columns(self.columns)
        return f"{self.output} {columns} of axis {axis} (values up to {self.largest:.3g})"

    def of(self, rows: Any) -> Any:
        """The group's part of [items, ...]."""
        return rows if self.axis is None else rows.take(self.columns, axis=self.axis)

    def energies(self, rows: Any) -> Any:
        """float [items]: mean square of each item's values around the center."""
        part = ((self.of(rows) - self.center) ** 2).reshape(len(rows), -1)
        return part.mean(axis=1) if part.size else part.sum(axis=1)


def find_groups(reference: Sequence[Batch], batched: bool) -> tuple[Group, ...]:
    """Every group of every output that holds numbers, in the order of the outputs."""
    groups: list[Group] = []
    for name, array in reference[0].items():
        if is_number(array):
            arrays = [as_rows(batch[name], batched) for batch in reference]
            groups += _of_output(name, [array for array in arrays if array.size], batched)
    return tuple(groups)


def is_number(array: Any) -> bool:
    """Whether values can be subtracted; the formats of ml_dtypes (kind V), such as bfloat16, are numbers."""
    import numpy as np

    return bool(np.issubdtype(array.dtype, np.number)) or array.dtype.kind == "V"


def as_rows(array: Any, batched: bool) -> Any:
    """The array with an axis of items in front and at least one axis behind it."""
    if not batched or not array.ndim:
        array = array[None]
    return array[:, None] if array.ndim == 1 else array


def finite(array: Any) -> Any:
    """The array as float64, zero where it is not finite."""
    import numpy as np

    array = array.astype(np.float64)
    return np.where(np.isfinite(array), array, 0.0)


@dataclass(frozen=True)
class _Columns:
    """Statistics of each column along one axis: arrays [columns]."""

    output: str
    axis: int
    batched: bool
    rank: int
    """Number of axes of the array [items, ...]."""
    count: int
    mean: Any
    spread: Any
    """Standard deviation."""
    low: Any
    high: Any
    whole: Any
    """Whether all values are whole numbers: a class, a count."""

    @property
    def size(self) -> Any:
        """Root of the mean square."""
        return (self.spread**2 + self.mean**2) ** 0.5

    @property
    def still(self) -> Any:
        """Whether a column is constant."""
        return self.spread <= _STILL * self.size

    def group(self, part: Any, center: Any) -> Group:
        """The group of some columns, without its energy, which is computed later."""
        largest = float(max(abs(self.low[part]).max(), abs(self.high[part]).max()))
        return Group(self.output, self.axis, part, center, 0.0, largest, self.batched)


def _of_output(name: str, arrays: list[Any], batched: bool) -> list[Group]:
    """Groups along the axis with the largest gap between groups, or the whole output as one group."""
    if not arrays:
        return []
    best: list[Group] = []
    farthest = _APART
    for axis in range(1, arrays[0].ndim):
        widths = {array.shape[axis] if array.ndim > axis else 0 for array in arrays}
        count = sum(array.size for array in arrays) // max(widths)
        if len(widths) > 1 or widths == {1} or count < _FEWEST:
            continue
        groups, apart = _split(_statistics(name, arrays, axis, batched))
        if apart >= farthest:
            best, farthest = groups, apart
    return [_with_energy(group, arrays) for group in best or [_whole(name, arrays, batched)]]


def _with_energy(group: Group, arrays: list[Any]) -> Group:
    import numpy as np

    spreads = [group.energies(part) ** 0.5 for part in _each(arrays)]
    return replace(group, energy=float(np.concatenate(spreads).mean() ** 2))


def _statistics(name: str, arrays: list[Any], axis: int, batched: bool) -> _Columns:
    import numpy as np

    others = tuple(place for place in range(arrays[0].ndim) if place != axis)
    shape = [-1 if place == axis else 1 for place in range(arrays[0].ndim)]
    count = sum(array.size // array.shape[axis] for array in arrays)
    mean = sum(part.sum(axis=others) for part in _each(arrays)) / count
    middle = mean.reshape(shape)
    variance = sum(((part - middle) ** 2).sum(axis=others) for part in _each(arrays)) / count
    low = np.min([part.min(axis=others) for part in _each(arrays)], axis=0)
    high = np.max([part.max(axis=others) for part in _each(arrays)], axis=0)
    whole = np.all([(part == np.rint(part)).all(axis=others) for part in _each(arrays)], axis=0)
    rank = arrays[0].ndim
    return _Columns(name, axis, batched, rank, count, mean, np.sqrt(variance), low, high, whole)


def _each(arrays: list[Any]) -> Iterator[Any]:
    """The arrays as float64, one at a time because that takes twice the memory of FP32."""
    return (finite(array) for array in arrays)


def _whole(name: str, arrays: list[Any], batched: bool) -> Group:
    count = sum(array.size for array in arrays)
    mean = sum(part.sum() for part in _each(arrays)) / count
    variance = sum(((part - mean) ** 2).sum() for part in _each(arrays)) / count
    largest = max(float(abs(part).max()) for part in _each(arrays))
    still = variance <= _STILL**2 * (variance + mean**2)
    return Group(name, center=0.0 if still else float(mean), largest=largest, batched=batched)


def _split(columns: _Columns) -> tuple[list[Group], float]:
    """Groups along one axis, and the largest factor between two neighboring groups."""
    import numpy as np

    moving, scales = ~columns.still, _scales(columns)
    kinds = [np.flatnonzero(moving & whole) for whole in (~columns.whole, columns.whole)]
    parts, apart = [], 0.0
    for kind in kinds:
        scaled = _by_scale(kind, scales)
        gaps = (scales[a].min() / scales[b].max() for a, b in pairwise(scaled))
        apart = max([apart, *map(float, gaps)])
        parts += scaled
    if all(map(len, kinds)):
        apart = max(apart, _APART)
    groups = []
    for part in _with_zeros(columns, parts):
        center, offset = _center(columns, part)
        apart = max(apart, offset)
        groups.append(columns.group(part, center))
    fixed = np.flatnonzero(columns.still & (columns.size > 0))
    for part in _by_scale(fixed, columns.size):
        groups.append(columns.group(part, 0.0))
    return groups, apart


def _with_zeros(columns: _Columns, parts: list[Any]) -> list[Any]:
    """The parts, with columns that are always zero added to the part of the largest spread."""
    import numpy as np

    zero = np.flatnonzero(columns.size == 0)
    if not len(zero) or not parts:
        return [*parts, zero] if len(zero) else parts
    largest = max(range(len(parts)), key=lambda place: columns.spread[parts[place]].max())
    return [np.sort(np.append(part, zero)) if place == largest else part for place, part in enumerate(parts)]


def _scales(columns: _Columns) -> Any:
    """The spreads that separate columns; for scores of classes that do not occur, at least the least spread of
    the others."""
    import numpy as np

    score = (columns.low >= 0) & (columns.high <= 1) & ~columns.still
    occurs = score & (columns.high >= _LIKELY)
    if not occurs.any():
        return columns.spread
    least = columns.spread[occurs].min()
    return np.where(score & ~occurs, np.maximum(columns.spread, least), columns.spread)


def _by_scale(which: Any, scales: Any) -> list[Any]:
    """Columns in groups, the largest scale first; neighbors within a group differ by less than `_APART`."""
    import numpy as np

    if not len(which):
        return []
    ranked = which[np.argsort(-scales[which], kind="stable")]
    values = scales[ranked]
    edges = np.flatnonzero(values[:-1] >= _APART * values[1:]) + 1
    return [np.sort(part) for part in np.split(ranked, edges)]


def _center(columns: _Columns, part: Any) -> tuple[Any, float]:
    """The center of a group's values, and an offset.

    That is their mean and 0, or the means of the columns and the number of spreads by which these differ.
    """
    mean, spread = columns.mean[part], columns.spread[part]
    within, between = float((spread**2).mean()), float(mean.var())
    offset = (between / within) ** 0.5 if within else 0.0
    if offset >= _APART and len(part) <= _FEW_COLUMNS and columns.count >= _CENTERED:
        shape = [-1 if place == columns.axis else 1 for place in range(columns.rank)]
        return mean.reshape(shape), offset
    return float(mean.mean()), 0.0


def _said_columns(columns: Any) -> str:
    """`column 5`, `columns 4 to 23`, `columns 0, 2, 7, 8, 9, 12 and 30 more`."""
    numbers = [int(column) for column in columns]
    if len(numbers) == 1:
        return f"column {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"columns {numbers[0]} to {numbers[-1]}"
    more = f" and {len(numbers) - 6} more" if len(numbers) > 6 else ""
    return f"columns {', '.join(map(str, numbers[:6]))}{more}"
