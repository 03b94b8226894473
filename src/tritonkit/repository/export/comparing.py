"""Compare an item's answer in a batch with the same item's answer alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tritonkit.repository.export.neighbors import NAN, jittered
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.modelspec.quality import Tolerance

__all__ = ["apart", "differs_by", "explains", "has_floats", "may_be_rare", "rare", "spread", "tipped"]

_JITTERS = (1e-6, 1e-6, 1e-5, 1e-5, 1e-5, 1e-4)
_RARE = 0.005
"""Share of the discrete values that rounding may have changed, in a network without float input."""

_SHAKEN_FACTOR = 8.0
"""Factor by which rounding may exceed the spread of shaken networks."""


def tipped(run: Callable[[Batch], Batch], item: Batch, alone: Batch, tolerance: Tolerance) -> dict[str, Any]:
    """Output -> mask of a single item's values that change with noise as small as rounding (ties, thresholds)."""
    import numpy as np

    masks = {name: np.zeros(array.shape, bool) for name, array in alone.items()}
    for seed, share in enumerate(_JITTERS if has_floats(item) else ()):
        for name, array in run(jittered(item, share, seed)).items():
            differing = apart(array, alone[name], tolerance, 0.01)
            if differing is not None:
                masks[name] |= differing
    return masks


def spread(moved: Sequence[Any], still: Any) -> Any:
    """Largest distance that rounding may move each value of an output, from slightly moved networks or inputs.

    It is infinite for a discrete value that changes.
    """
    import numpy as np

    distance = np.zeros(still.shape)
    for array in moved:
        if array.shape != still.shape:
            continue
        if not np.issubdtype(still.dtype, np.floating):
            distance[array != still] = np.inf
            continue
        with np.errstate(invalid="ignore"):
            moves = np.abs(array.astype(np.float64) - still)
        distance = np.fmax(distance, _SHAKEN_FACTOR * moves)
    return distance


def explains(moves: Any, got: Any, expected: Any) -> Any:
    """Mask of the values that lie no further apart than a spread."""
    import numpy as np

    if not np.issubdtype(expected.dtype, np.floating):
        return (got == expected) | np.isinf(moves)
    with np.errstate(invalid="ignore"):
        return np.abs(got.astype(np.float64) - expected) <= moves


def may_be_rare(item: Batch, expected: Any) -> bool:
    """Whether values are discrete and the network has no float input, so that noise on the input cannot show ties."""
    import numpy as np

    return not np.issubdtype(expected.dtype, np.floating) and not has_floats(item)


def rare(compared: int) -> float:
    """Number of values that may differ, of those that `may_be_rare` is true for."""
    return max(1, _RARE * compared)


def has_floats(item: Batch) -> bool:
    """Whether an item has a number that noise can change."""
    import numpy as np

    return any(np.issubdtype(array.dtype, np.floating) for array in item.values())


def apart(got: Any, expected: Any, tolerance: Tolerance, floor: float) -> Any:
    """A mask of the values of two rows that differ by more than the tolerance, or None.

    NaN equals NaN, and an infinity equals itself. The absolute tolerance is for values around 1. For smaller outputs
    it is multiplied by the largest value, or by `floor` if that is more.
    """
    import numpy as np

    if got.shape != expected.shape:
        return np.ones(expected.shape, bool)
    if not np.issubdtype(expected.dtype, np.floating):
        differing = got != expected
        return differing if differing.any() else None
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    scale = min(1.0, max(float(finite.max(initial=0.0)), floor))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= tolerance.absolute * scale + tolerance.relative * np.abs(b)
    differing = ~(near & np.isfinite(b) & np.isfinite(a) | (a == b) | np.isnan(a) & np.isnan(b))
    return differing if differing.any() else None


def differs_by(got: Any, expected: Any) -> str:
    """Text for the difference: ` by 0.53`, ` to NaN`, or both shapes."""
    import numpy as np

    if got.shape != expected.shape:
        return f" in shape: {list(got.shape[1:])} and {list(expected.shape[1:])}"
    if not np.issubdtype(expected.dtype, np.number):
        return ""
    a, b = got.astype(np.float64), expected.astype(np.float64)
    if (np.isnan(a) & ~np.isnan(b)).any():
        return f" to {NAN}"
    with np.errstate(invalid="ignore"):
        return f" by {np.nanmax(np.where(a == b, 0.0, np.abs(a - b)), initial=0.0):.3g}"
