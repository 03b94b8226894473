"""Closeness of two networks' outputs, item by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tritonkit.repository.export.groups import Group, as_rows, find_groups, finite, is_number
from tritonkit.repository.export.samples import Batch

__all__ = ["Yardstick", "differences", "item_cosines", "item_r2", "mean_cosine", "worst_group"]

_FARTHEST = -1e9
"""Lowest closeness, low enough to rank candidates that are all bad."""
_EDGES = tuple(10.0**power for power in range(-8, 3))


def item_r2(
    groups: Sequence[Group],
    outputs: Sequence[Batch],
    reference: Sequence[Batch],
    tolerance: float = 1e-4,
    least: float = -1.0,
) -> dict[str, Any]:
    """Label of each group -> float64 [items]: R2 = 1 - mean square error / energy of the reference's values.

    That is the coefficient of determination (Nash and Sutcliffe 1970, doi:10.1016/0022-1694(70)90255-6): 1 where
    outputs are equal, 0 where they are no better than the reference's mean. So a large constant part hides
    nothing. The energy is the item's own around that mean, or the typical item's if that is larger. Errors of values
    that never vary are compared with the values' size, and errors of zeros with `tolerance`. The lowest score is
    `least`, which an output that is not finite gets too.
    """
    import numpy as np

    scores: dict[str, list[Any]] = {group.label: [] for group in groups}
    for got, expected in zip(outputs, reference, strict=True):
        pairs: dict[str, tuple[Any, Any, Any]] = {}
        for group in groups:
            name = group.output
            if name not in pairs:
                pairs[name] = _differences(got[name], expected[name], group.batched)
            values, difference, bad = pairs[name]
            error = replace(group, center=0.0).energies(difference)
            energy = np.maximum(group.energies(values), group.energy or tolerance**2)
            score = np.maximum(least, 1 - error / energy)
            scores[group.label].append(np.where(bad, least, score))
    return {label: np.concatenate(parts) for label, parts in scores.items()}


def worst_group(scores: dict[str, Any]) -> tuple[str, Any]:
    """Label and scores of the group with the lowest mean; a perfect score if there is no group."""
    import numpy as np

    if not scores:
        return "", np.ones(1)
    return min(scores.items(), key=lambda entry: float(entry[1].mean()))


def _differences(values: Any, expected: Any, batched: bool) -> tuple[Any, Any, Any]:
    """The reference and the differences as [items, ...], and whether an item has a value that only the
    reference has finite."""
    import numpy as np

    values, expected = as_rows(values, batched), as_rows(expected, batched)
    same = ~np.isfinite(expected.astype(np.float64))
    bad = ~np.isfinite(values.astype(np.float64)) & ~same
    reference = finite(expected)
    difference = np.where(same, 0.0, finite(values) - reference)
    return reference, difference, bad.reshape(len(bad), -1).any(axis=1)


def item_cosines(outputs: Sequence[Batch], reference: Sequence[Batch], batched: bool = True) -> Any:
    """float64 [items]: the cosine of each item's outputs, all taken as one vector; -1 where not finite.

    Outputs without numbers do not count. Two vectors of zeros are the same: 1.
    """
    import numpy as np

    cosines = []
    for got, expected in zip(outputs, reference, strict=True):
        names = [name for name, array in expected.items() if is_number(array)]
        pairs = [(_rows(got[name], batched), _rows(expected[name], batched)) for name in names]
        if not pairs:
            continue
        a, b = (np.concatenate(side, axis=1) for side in zip(*pairs, strict=True))
        # Infinities that the reference has too were compared elsewhere.
        same = ~np.isfinite(b)
        a, b = np.where(same, 0.0, a), np.where(same, 0.0, b)
        bad = ~np.isfinite(a).all(axis=1)
        a = np.where(bad[:, None], 0.0, a)
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        both_zero = (np.abs(a).max(axis=1) == 0) & (np.abs(b).max(axis=1) == 0)
        cosine = np.divide((a * b).sum(axis=1), norms, out=np.zeros_like(norms), where=norms > 0)
        cosines.append(np.where(bad, -1.0, np.where(both_zero, 1.0, cosine)))
    return np.concatenate(cosines) if cosines else np.ones(1)


def mean_cosine(outputs: Sequence[Batch], reference: Sequence[Batch], batched: bool = True) -> float:
    """Mean of `item_cosines`; -1 where any output is not finite."""
    cosines = item_cosines(outputs, reference, batched)
    return -1.0 if (cosines == -1.0).any() else float(cosines.mean())


@dataclass(frozen=True)
class Yardstick:
    """The measure that compares variants with FP32 while they are made.

    If the spec has no metric, it is R2 of the worst group, as in the gate. Otherwise it is the cosine, because the
    metric may be too slow to run for each layer that is tried.
    """

    groups: tuple[Group, ...] | None
    batched: bool

    @classmethod
    def of(cls, own_metric: bool, reference: Sequence[Batch], batched: bool) -> Yardstick:
        """The yardstick for a network with these reference outputs."""
        return cls(None if own_metric else find_groups(reference, batched), batched)

    @property
    def name(self) -> str:
        """The measure's name in notes."""
        return "mean cosine" if self.groups is None else "R2"

    def items(self, outputs: Sequence[Batch], reference: Sequence[Batch]) -> Any:
        """Each item's closeness, float64 [items]: 1 where outputs are equal."""
        if self.groups is None:
            return item_cosines(outputs, reference, self.batched)
        return worst_group(item_r2(self.groups, outputs, reference, least=_FARTHEST))[1]

    def mean(self, outputs: Sequence[Batch], reference: Sequence[Batch]) -> float:
        """The mean closeness of the items; 0 or less where an output is not finite."""
        if self.groups is None:
            return mean_cosine(outputs, reference, self.batched)
        return float(self.items(outputs, reference).mean())


def differences(outputs: Sequence[Batch], reference: Sequence[Batch]) -> dict[str, int]:
    """Histogram of the differences of output elements: upper edge of each power of ten -> count.

    `0` counts equal elements, and `more` counts elements beyond the last edge.
    """
    import numpy as np

    counts = np.zeros(len(_EDGES) + 1, dtype=np.int64)
    equal = 0
    for got, expected in zip(outputs, reference, strict=True):
        for name, array in expected.items():
            if not is_number(array):
                continue
            with np.errstate(invalid="ignore"):
                difference = np.abs(got[name].astype(np.float64) - array.astype(np.float64))
            difference = np.where(got[name] == array, 0.0, difference).ravel()
            equal += int((difference == 0).sum())
            counts += np.bincount(np.searchsorted(_EDGES, difference[difference > 0]), minlength=len(counts))
    labels = [f"{edge:.0e}" for edge in _EDGES] + ["more"]
    return {"0": equal, **dict(zip(labels, map(int, counts), strict=True))}


def _rows(array: Any, batched: bool) -> Any:
    import numpy as np

    rows = array.shape[0] if batched and array.ndim else 1
    return np.asarray(array, dtype=np.float64).reshape(rows, -1)
