"""How close two networks' outputs are, item by item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonkit.export.samples import Batch

__all__ = ["differences", "item_cosines", "mean_cosine"]

_EDGES = tuple(10.0**power for power in range(-8, 3))


def item_cosines(found: Sequence[Batch], wanted: Sequence[Batch], batched: bool = True) -> Any:
    """float64 [items]: the cosine of each item's outputs, all taken as one vector; -1 where not finite.

    Outputs without numbers do not count. Two vectors of zeros are the same: 1.
    """
    import numpy as np

    cosines = []
    for got, expected in zip(found, wanted, strict=True):
        names = [name for name, array in expected.items() if np.issubdtype(array.dtype, np.number)]
        pairs = [(_rows(got[name], batched), _rows(expected[name], batched)) for name in names]
        if not pairs:
            continue
        a, b = (np.concatenate(side, axis=1) for side in zip(*pairs, strict=True))
        # An infinity that the reference has too was held equal elsewhere.
        same = ~np.isfinite(b)
        a, b = np.where(same, 0.0, a), np.where(same, 0.0, b)
        bad = ~np.isfinite(a).all(axis=1)
        a = np.where(bad[:, None], 0.0, a)
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        both_zero = (np.abs(a).max(axis=1) == 0) & (np.abs(b).max(axis=1) == 0)
        cosine = np.divide((a * b).sum(axis=1), norms, out=np.zeros_like(norms), where=norms > 0)
        cosines.append(np.where(bad, -1.0, np.where(both_zero, 1.0, cosine)))
    return np.concatenate(cosines) if cosines else np.ones(1)


def mean_cosine(found: Sequence[Batch], wanted: Sequence[Batch]) -> float:
    """Mean of `item_cosines`; -1 where any output is not finite."""
    cosines = item_cosines(found, wanted)
    return -1.0 if (cosines == -1.0).any() else float(cosines.mean())


def differences(found: Sequence[Batch], wanted: Sequence[Batch]) -> dict[str, int]:
    """How many output elements differ by how much: the upper edge of each power of ten -> count.

    `0` counts the equal ones, `more` those beyond the last edge.
    """
    import numpy as np

    counts = np.zeros(len(_EDGES) + 1, dtype=np.int64)
    equal = 0
    for got, expected in zip(found, wanted, strict=True):
        for name, array in expected.items():
            if not np.issubdtype(array.dtype, np.number):
                continue
            with np.errstate(invalid="ignore"):
                difference = np.abs(got[name].astype(np.float64) - array.astype(np.float64))
            difference = np.where(got[name] == array, 0.0, difference).ravel()
            equal += int((difference == 0).sum())
            counts += np.bincount(
                np.searchsorted(_EDGES, difference[difference > 0]), minlength=len(counts)
            )
    labels = [f"{edge:.0e}" for edge in _EDGES] + ["more"]
    return {"0": equal, **dict(zip(labels, map(int, counts), strict=True))}


def _rows(array: Any, batched: bool) -> Any:
    import numpy as np

    rows = array.shape[0] if batched and array.ndim else 1
    return np.asarray(array, dtype=np.float64).reshape(rows, -1)
