"""Compares an item's answer in a batch with its answer alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Difference", "difference"]

_TOLERANCE = 1e-3
"""Share of an output's largest magnitude: kernels differ by batch size, in FP32 in the fifth digit or later."""
_HALF = {"FP16": 2e-2, "BF16": 5e-2}


class Difference(NamedTuple):
    """The place and size of an answer's difference: `distance` is the largest difference, `largest` the largest
    magnitude of the answer alone; both are None where the values are not floating-point or the shapes differ."""

    output: str
    distance: float | None = None
    largest: float | None = None

    def __str__(self) -> str:
        if self.distance is None:
            return f"output {self.output} is another one"
        return f"output {self.output} differs by {self.distance:.3g} where its largest value is {self.largest:.3g}"


def difference(
    alone: Mapping[str, NDArray[Any]],
    together: Mapping[str, NDArray[Any]],
    datatypes: Mapping[str, str],
    tolerance: float | None = None,
) -> Difference | None:
    """The first output whose values differ from those of the item alone; None if none do.

    Args:
        alone: outputs of a request with this item only.
        together: the item's part of the outputs of a request with several items.
        datatypes: Triton's datatypes of outputs, by name.
        tolerance: the allowed difference, relative to an output's largest magnitude; the default depends on its
            datatype. Whole numbers and texts must be equal.
    """
    for name, reference in alone.items():
        answer = together.get(name)
        if answer is None or answer.shape != reference.shape:
            return Difference(name)
        if reference.dtype.kind != "f":
            if not np.array_equal(answer, reference):
                return Difference(name)
            continue
        allowed = _HALF.get(datatypes.get(name, ""), _TOLERANCE) if tolerance is None else tolerance
        if (several := _far(name, reference.astype(np.float64), np.asarray(answer, np.float64), allowed)) is not None:
            return several
    return None


def _far(name: str, reference: NDArray[np.float64], answer: NDArray[np.float64], tolerance: float) -> Difference | None:
    """The difference of two arrays of one shape, where it is beyond the tolerance."""
    finite = np.isfinite(reference)
    if not np.array_equal(reference[~finite], answer[~finite], equal_nan=True):
        return Difference(name)
    numbers = np.abs(reference[finite])
    if not numbers.size:
        return None
    largest = float(numbers.max())
    distance = float(np.abs(answer[finite] - reference[finite]).max())
    # NaN in one of them alone is a difference too.
    return None if distance <= tolerance * largest + 1e-6 else Difference(name, distance, largest)
