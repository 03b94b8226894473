"""Compare a variant's outputs with the reference's: names, then shapes, then values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.samples import Batch, said_shapes
from tritonkit.repository.modelspec import Spec

__all__ = ["TRAINING_MODE", "compare"]

TRAINING_MODE = "look for layers that behave differently in training mode, or widen the tolerance"
"""Advice for values beyond the tolerance."""


def compare(
    spec: Spec, given: Sequence[Batch], outputs: Sequence[Batch], reference: Sequence[Batch], *, lossless: bool
) -> float:
    """The largest absolute difference of any output element.

    BuildError for the first output that differs in name or shape, or is not finite where the
    reference is; with `lossless`, also for the first one beyond the spec's tolerance.
    """
    largest = 0.0
    for batch, got, expected in zip(given, outputs, reference, strict=True):
        if set(got) != set(expected):
            raise BuildError(
                f"{spec.file} network", found=f"the exported file gives {sorted(got)}", wanted=f"{sorted(expected)}"
            )
        for name, array in got.items():
            if array.shape != expected[name].shape:
                raise BuildError(
                    f"{spec.file} output {name}",
                    found=f"shape {list(array.shape)} for {said_shapes(batch)}",
                    wanted=f"{list(expected[name].shape)}, as the reference gives",
                )
            largest = max(largest, _difference(spec, name, array, expected[name], lossless))
    return largest


def _difference(spec: Spec, name: str, values: Any, reference: Any, lossless: bool) -> float:
    """Largest absolute difference, which must lie within the spec's tolerance if `lossless`."""
    import numpy as np

    if not np.issubdtype(reference.dtype, np.number):
        if not np.array_equal(values, reference):
            raise BuildError(f"{spec.file} output {name}", found="values that differ from the reference's")
        return 0.0
    tolerance = spec.model.quality.tolerance
    a, b = values.astype(np.float64), reference.astype(np.float64)
    if np.isnan(b).any():
        raise BuildError(
            f"{spec.file} output {name}",
            found=f"the reference itself gives NaN in {int(np.isnan(b).sum())} of {b.size} elements",
            wanted="numbers, which can be compared",
            todo="check the weights and the training, or give real input with quality.samples",
        )
    with np.errstate(invalid="ignore"):  # equal infinities differ by nothing
        difference = np.where(a == b, 0.0, np.abs(a - b))
    if not lossless and (bad := int((~np.isfinite(a) & np.isfinite(b)).sum())):
        raise BuildError(
            f"{spec.file} output {name}",
            found=f"{bad} of {a.size} elements are NaN or infinite, which the reference's are not",
            wanted="finite numbers",
            todo="choose another variant: this one's number format cannot hold this network's values",
        )
    if lossless and not np.allclose(a, b, atol=tolerance.absolute, rtol=tolerance.relative):
        worst = np.unravel_index(np.argmax(np.nan_to_num(difference, nan=np.inf)), a.shape)
        raise BuildError(
            f"{spec.file} quality.tolerance",
            found=f"output {name}{list(map(int, worst))} is {a[worst]:.6g} and the reference's {b[worst]:.6g}",
            wanted=f"within {tolerance.absolute:g} + {tolerance.relative:g} x the reference",
            todo=TRAINING_MODE,
        )
    return float(difference.max(initial=0.0))
