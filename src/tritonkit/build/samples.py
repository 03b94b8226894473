"""Inputs on which a network is checked: the spec's own real data, or seeded random arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tritonkit.build.artifact import Signature, TensorInfo
from tritonkit.build.hooks import load_hook
from tritonkit.errors import BuildError
from tritonkit.spec import Spec

__all__ = ["NUMPY_DTYPES", "Batch", "batches", "dummy_batch"]

Batch = dict[str, Any]
"""Tensor name -> numpy array, batch axis first; numpy itself is imported where arrays are made."""

# BF16 has no numpy dtype and BYTES no fixed one: networks that take them need a samples hook.
NUMPY_DTYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "FP16": "float16", "FP32": "float32", "FP64": "float64",
}  # fmt: skip
_MOST_ELEMENTS = 2**27  # 1 GiB while the numbers are drawn


def batches(spec: Spec, signature: Signature) -> list[Batch]:
    """The spec's real samples, or random ones of several batch and axis sizes."""
    real = _real_batches(spec, signature)
    if real is not None:
        return real
    sizes = (1, 3) if signature.batched else (1,)
    return [
        dummy_batch(spec, signature, size, largest, seed)
        for seed, (size, largest) in enumerate((s, f) for s in sizes for f in (False, True))
    ]


def _real_batches(spec: Spec, signature: Signature) -> list[Batch] | None:
    """What the `samples` hook returns, held against the network's inputs."""
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
    return [_checked(spec, signature, place, batch) for place, batch in enumerate(given)]


def _checked(spec: Spec, signature: Signature, place: int, batch: Batch) -> Batch:
    """One batch of the hook, copied in C order; BuildError names the first input that does not fit."""
    import numpy as np

    where = f"{spec.file} quality.samples"
    names = [tensor.name for tensor in signature.inputs]
    if set(batch) != set(names):
        raise BuildError(
            where, found=f"batch {place} has the names {sorted(map(str, batch))}", wanted=f"{names}"
        )
    counts: set[int] = set()
    for tensor in signature.inputs:
        array = batch[tensor.name]
        if not isinstance(array, np.ndarray) or not _fits(array, tensor, signature.batched):
            shape = [*(["batch"] if signature.batched else []), *tensor.shape]
            raise BuildError(
                where,
                found=f"batch {place} has {_described(array)} for {tensor.name}",
                wanted=f"a numpy array of {tensor.dtype} {shape}, -1 for any size",
            )
        counts.update(array.shape[:1] if signature.batched else ())
    if len(counts) > 1 or 0 in counts:
        raise BuildError(
            where,
            found=f"batch {place} has inputs of {sorted(counts)} items",
            wanted="the same number of items in every input, at least 1",
        )
    return {name: np.array(batch[name], order="C") for name in names}


def _fits(array: Any, tensor: TensorInfo, batched: bool) -> bool:
    """Dtype and shape; a network's BYTES may come as text or bytes, BF16 as whatever holds it."""
    shape = array.shape[1:] if batched else array.shape
    known = NUMPY_DTYPES.get(tensor.dtype)
    dtype_fits = (
        array.dtype == known if known else tensor.dtype == "BF16" or array.dtype.kind in "OSU"
    )
    return (
        dtype_fits
        and array.ndim == len(tensor.shape) + batched
        and all(size in (-1, got) for size, got in zip(tensor.shape, shape, strict=True))
    )


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"a {type(value).__name__}"
    return f"a {type(value).__name__} of {getattr(value, 'dtype', '?')} {list(shape)}"


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
    import numpy as np

    if tensor.dtype not in NUMPY_DTYPES:
        raise BuildError(
            f"input {tensor.name}",
            found=f"no data can be made up for {tensor.dtype}",
            todo="give real data with quality.samples",
        )
    if math.prod(shape) > _MOST_ELEMENTS:
        raise BuildError(
            f"input {tensor.name}",
            found=f"a shape of {list(shape)}",
            wanted=f"at most {_MOST_ELEMENTS} elements where data is made up",
            todo="correct the shape, or give real data with quality.samples",
        )
    dtype = NUMPY_DTYPES[tensor.dtype]
    if tensor.dtype.startswith("FP"):
        return np.asarray(random.standard_normal(shape), dtype)
    # Small indices are valid for any embedding table and any class count.
    return np.asarray(random.integers(0, 2, shape), dtype)
