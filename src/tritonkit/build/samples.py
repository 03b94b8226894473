"""Inputs on which a network is checked: the spec's own real data, or seeded random arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonkit.build.artifact import Signature, TensorInfo
from tritonkit.build.hooks import load_hook
from tritonkit.errors import BuildError
from tritonkit.spec import Spec

__all__ = ["NUMPY_DTYPES", "Batch", "batches", "dummy_batch", "real_batches"]

Batch = dict[str, Any]
"""Tensor name -> numpy array, batch axis first; numpy itself is imported where arrays are made."""

# BF16 has no numpy dtype and BYTES no fixed one: networks that take them need a samples hook.
NUMPY_DTYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "FP16": "float16", "FP32": "float32", "FP64": "float64",
}  # fmt: skip


def batches(spec: Spec, signature: Signature) -> list[Batch]:
    """The spec's real samples, or random ones of several batch and axis sizes."""
    real = real_batches(spec)
    if real is not None:
        return real
    sizes = (1, 3) if signature.batched else (1,)
    return [
        dummy_batch(spec, signature, size, largest, seed)
        for seed, (size, largest) in enumerate((s, f) for s in sizes for f in (False, True))
    ]


def real_batches(spec: Spec) -> list[Batch] | None:
    """What the `samples` hook returns, checked: a list of batches, each input name -> array."""
    hook = spec.model.quality.samples
    if hook is None:
        return None
    found = load_hook(spec, hook, "quality.samples")()
    given = [found] if isinstance(found, dict) else found
    if not isinstance(given, Sequence) or not given or not all(isinstance(b, dict) for b in given):
        raise BuildError(
            f"{spec.file} quality.samples",
            found=f"{hook} returned {type(found).__name__}",
            wanted="a list of batches, each a dict of input name -> array with the batch axis first",
        )
    return list(given)


def dummy_batch(spec: Spec, signature: Signature, size: int, largest: bool, seed: int = 0) -> Batch:
    """Random arrays [size, ...]; free axes take their largest or smallest size, at most 64."""
    import numpy as np

    random = np.random.default_rng(seed)
    lead = (size,) if signature.batched else ()
    return {
        tensor.name: _random(random, tensor, lead + _sizes(spec, tensor, largest))
        for tensor in signature.inputs
    }


def _sizes(spec: Spec, tensor: TensorInfo, largest: bool) -> tuple[int, ...]:
    free = spec.model.network.free_axes
    sizes = []
    for position, size in enumerate(tensor.shape):
        axis = free.get(tensor.axes[position]) if tensor.axes else None
        if size >= 0:
            sizes.append(size)
        elif axis is not None:
            sizes.append(min(axis.max, max(axis.min, 64)) if largest else max(axis.min, 2))
        else:
            sizes.append(7 if largest else 3)
    return tuple(sizes)


def _random(random: Any, tensor: TensorInfo, shape: tuple[int, ...]) -> Any:
    if tensor.dtype not in NUMPY_DTYPES:
        raise BuildError(
            f"input {tensor.name}",
            found=f"no data can be made up for {tensor.dtype}",
            todo="give real data with quality.samples",
        )
    dtype = NUMPY_DTYPES[tensor.dtype]
    if tensor.dtype.startswith("FP"):
        return random.standard_normal(shape).astype(dtype)
    # Small indices are valid for any embedding table and any class count.
    return random.integers(0, 2, shape).astype(dtype)
