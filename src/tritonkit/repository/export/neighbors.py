"""Items for the proof that those of a batch are independent: real or made-up, and neighbors that reveal a coupling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonkit.repository.export.samples import Batch, count_items

__all__ = [
    "FINITE_KINDS",
    "KINDS",
    "NAN",
    "OTHERS",
    "WHOLE",
    "ZEROS",
    "groups_of",
    "jittered",
    "join",
    "neighbor",
    "orders",
    "patterns",
]

LARGE, HUGE, ZEROS, NEGATIVE, NAN = "1000 times as large", "huge", "zeros", "negative", "NaN"
TENFOLD, WHOLE = "10 times as large", "large whole numbers"
OTHERS = "others"
"""Another of the same items, for items without a number to change."""
KINDS = (LARGE, ZEROS, HUGE, NAN, NEGATIVE, TENFOLD, WHOLE)
"""Replacements of another item of the batch, the most revealing first."""
FINITE_KINDS = (LARGE, ZEROS, NEGATIVE)
"""Neighbors for networks in fewer bits, and for engines that may use a number as an index before checking it."""

_MOST_ITEMS = 12
"""Most items of one layout: enough for batches without two equal items, where there are samples."""
_FACTORS = {LARGE: 1e3, HUGE: 1e12, NEGATIVE: -1.0, TENFOLD: 10.0}


def groups_of(samples: Sequence[Batch]) -> list[list[Batch]]:
    """Items [1, ...] of the samples, grouped by their shapes, since only items of one shape share a batch.

    A group has at most a dozen items, evenly from all samples. Made-up variants are added to a small group.
    """
    places_by_layout: dict[tuple[tuple[int, ...], ...], list[tuple[Batch, int]]] = {}
    for batch in samples:
        layout = tuple(array.shape[1:] for array in batch.values())
        places_by_layout.setdefault(layout, []).extend((batch, row) for row in range(count_items(batch)))
    groups = []
    for places in places_by_layout.values():
        step = max(1, len(places) // _MOST_ITEMS)
        chosen = places[::step][:_MOST_ITEMS]
        items = [{name: a[row : row + 1] for name, a in batch.items()} for batch, row in chosen]
        groups.append(_filled_up(items))
    return sorted(groups, key=lambda items: sum(array.nbytes for array in items[0].values()))


def _filled_up(items: list[Batch]) -> list[Batch]:
    """Distinct items, with variants of the first few added until there are enough."""
    distinct: dict[Any, Batch] = {_key(item): item for item in items}
    for turn in range(3):
        for item in items[:4]:
            if len(distinct) < _MOST_ITEMS:
                made = _varied(item, turn)
                distinct.setdefault(_key(made), made)
    return list(distinct.values())


def _key(item: Batch) -> tuple[bytes, ...]:
    """A key that is equal for equal items; objects (text) are compared by their printed form."""
    return tuple(repr(array.tolist()).encode() if array.dtype == object else array.tobytes() for array in item.values())


def _varied(item: Batch, turn: int) -> Batch:
    """Another item of the same values: reversed, moved by one, or (floats) half as large."""
    import numpy as np

    def change(array: Any) -> Any:
        if turn == 0:
            return array[:, ..., ::-1] if array.ndim > 1 else array
        if turn == 1:
            return np.roll(array, 1, axis=-1) if array.ndim > 1 else array
        return array * array.dtype.type(0.5) if _is_float(array) else array

    return {name: np.ascontiguousarray(change(array)) for name, array in item.items()}


def neighbor(item: Batch, kind: str) -> Batch | None:
    """The item changed into a neighbor of the given kind; None if it has no number to change that way."""
    import numpy as np

    def change(array: Any) -> Any:
        if kind == ZEROS:
            return np.zeros_like(array) if array.dtype != object else array
        if kind == WHOLE and array.dtype.kind in "iu":
            return _larger(array)
        if kind == WHOLE or not _is_float(array):
            return array
        if kind == NAN:
            return np.full_like(array, np.nan)
        with np.errstate(over="ignore"):
            return (array.astype(np.float64) * _FACTORS[kind]).astype(array.dtype)

    changed = {name: change(array) for name, array in item.items()}
    return changed if any(changed[name] is not item[name] for name in item) else None


def _larger(array: Any) -> Any:
    """Whole numbers times a million plus one, as far as their type goes. Tables refuse such numbers, but features of
    that type may be as large."""
    import numpy as np

    most = np.iinfo(array.dtype).max // (1 if array.dtype.itemsize == 1 else 2)
    wide = np.minimum(array.astype(np.float64) * 1e6 + 1, most)
    return wide.astype(array.dtype)


def orders(items: int, size: int, draws: int = 1) -> list[list[int]]:
    """Choices of items for a batch: in order, reversed, and drawn at random with repetitions."""
    import numpy as np

    straight = [row % items for row in range(size)]
    drawn = np.random.default_rng(size).integers(0, items, (draws, size))
    return [straight, [items - 1 - place for place in straight], *drawn.tolist()]


def patterns(size: int) -> list[list[bool]]:
    """Masks of the rows to replace: for any two rows, some mask replaces only one of them.

    There are two masks for each bit of a row's number.
    """
    bits = range(max(1, (size - 1).bit_length()))
    return [[bool(row >> bit & 1) is one for row in range(size)] for bit in bits for one in (True, False)]


def join(items: Sequence[Batch]) -> Batch:
    """One batch of several items."""
    import numpy as np

    return {name: np.concatenate([item[name] for item in items]) for name in items[0]}


def jittered(item: Batch, share: float, seed: int) -> Batch:
    """The item with noise on its floats, a given share of their size, as rounding may add."""
    import numpy as np

    random = np.random.default_rng(seed)

    def change(array: Any) -> Any:
        if not _is_float(array):
            return array
        noise = random.uniform(-share, share, array.shape)
        with np.errstate(invalid="ignore", over="ignore"):
            return (array.astype(np.float64) * (1 + noise)).astype(array.dtype)

    return {name: change(array) for name, array in item.items()}


def _is_float(array: Any) -> bool:
    import numpy as np

    return bool(np.issubdtype(array.dtype, np.floating))
