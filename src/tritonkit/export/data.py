"""The data that variants are made with: calibration and training batches of the spec's own hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.export.artifact import Signature
from tritonkit.export.hooks import load_hook
from tritonkit.export.samples import Batch, checked_batches, count_items
from tritonkit.spec import Spec

__all__ = ["hook_batches", "hook_training"]


def hook_batches(spec: Spec, signature: Signature, key: str) -> list[Batch]:
    """What `optimize.<key>` returns: batches of real input.

    BuildError where the hook is missing, or its data are empty, misshapen or not finite.
    """
    field = f"optimize.{key}"
    hook = _hook(spec, key)
    found = load_hook(spec, hook, field)()
    given = checked_batches(
        spec, signature, [found] if isinstance(found, dict) else found, field, hook
    )
    for place, batch in enumerate(given):
        _finite(spec, field, place, batch)
    return given


def hook_training(spec: Spec, signature: Signature) -> list[tuple[Batch, Any]]:
    """What `optimize.training` returns: (batch, targets), targets an array with an entry per item, or None."""
    field, hook = "optimize.training", _hook(spec, "training")
    found = load_hook(spec, hook, field)()
    pairs = isinstance(found, Sequence) and all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in found
    )
    if not pairs or not found:
        raise BuildError(
            f"{spec.file} {field}",
            found=f"{hook} returned " + ("no batch" if pairs else type(found).__name__),
            wanted="a list of (batch, targets): a dict of input name -> array, and an array or None",
        )
    given = checked_batches(spec, signature, [batch for batch, _ in found], field, hook)
    for place, (batch, (_, targets)) in enumerate(zip(given, found, strict=True)):
        _finite(spec, field, place, batch)
        if targets is not None and len(targets) != count_items(batch):
            raise BuildError(
                f"{spec.file} {field}",
                found=f"batch {place} has {count_items(batch)} items and {len(targets)} targets",
                wanted="one target for each item",
            )
    return list(zip(given, (targets for _, targets in found), strict=True))


def _hook(spec: Spec, key: str) -> str:
    hook: str | None = getattr(spec.model.optimize, key)
    if hook is None:
        what = "calibration" if key == "calibration" else "training"
        raise BuildError(
            f"{spec.file} optimize.{key}",
            found="it is not given",
            wanted=f"{what} data for this variant: real input, other than quality.samples",
            todo=f"write a function in the model's folder and name it: {key}: data:{key}_batches",
        )
    return hook


def _finite(spec: Spec, field: str, place: int, batch: Batch) -> None:
    import numpy as np

    for name, array in batch.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            count = int((~np.isfinite(array)).sum())
            raise BuildError(
                f"{spec.file} {field}",
                found=f"batch {place} has {count} of {array.size} elements of {name} that are NaN or infinite",
                wanted="finite numbers, by which ranges can be found",
            )
