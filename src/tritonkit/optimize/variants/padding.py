"""What padding does not count for: rows that a mask in the input says hold nothing."""

from __future__ import annotations

from typing import Any

from tritonkit.export.samples import Batch

__all__ = ["without_padding"]


def without_padding(outputs: Batch, batch: Batch) -> Batch:
    """The outputs, zero where the input is padding.

    A mask is an input of zeros and ones, [batch, length], as tokenizers make it, with a one in every
    item; it covers outputs of [batch, length, ...]. What a network makes of padding is never served,
    and forms of one network need not agree on it.
    """
    masks = [array for array in batch.values() if _is_mask(array)]
    found = dict(outputs)
    for name, array in outputs.items():
        for mask in masks:
            if array.shape[:2] == mask.shape and array.ndim > 2:
                found[name] = array * mask.astype(array.dtype)[(..., *(None,) * (array.ndim - 2))]
    return found


def _is_mask(array: Any) -> bool:
    if array.ndim != 2 or array.dtype.kind not in "biu":
        return False
    return bool(((array == 0) | (array == 1)).all() and array.any(axis=1).all())
