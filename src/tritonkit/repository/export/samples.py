"""Inputs on which a network is checked: the spec's own real data, or seeded random arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.hooks import load_hook
from tritonkit.repository.export.made_up import NO_HINTS, Hints, make_up
from tritonkit.repository.export.ready.prepared import PreparedSamples, prepare
from tritonkit.repository.modelspec import SampleFiles, Spec

__all__ = [
    "Batch",
    "batches",
    "cannot_run",
    "count_items",
    "each_item",
    "first_items",
    "hook_training",
    "read_calibration",
    "read_samples",
    "said_shapes",
]

_OTHER_SOURCES = {"calibration": "name files, as quality.samples does: calibration: {csv: calibration.csv}; or "}
"""Field of `optimize` -> advice for data that may come from elsewhere than a function."""
Batch = dict[str, Any]
"""Tensor name -> numpy array, batch axis first; numpy itself is imported where arrays are made."""


def batches(spec: Spec, signature: Signature, hints: Hints = NO_HINTS) -> list[Batch]:
    """The spec's real samples, at most `quality.max_samples`, or made-up samples of several batch and
    axis sizes."""
    return read_samples(spec, signature, hints).batches


def read_samples(spec: Spec, signature: Signature, hints: Hints = NO_HINTS) -> PreparedSamples:
    """The same, with what is known of each item where they are files."""
    quality, field = spec.model.quality, "quality.samples"
    if isinstance(quality.samples, SampleFiles):
        return _from_files(spec, signature, field, quality.samples, quality.max_samples)
    if quality.samples is not None:
        real = _from_hook(spec, signature, field, quality.samples)
        return PreparedSamples(first_items(real, quality.max_samples, signature.batched))
    sizes = (1, 3) if signature.batched else (1,)
    return PreparedSamples(
        [
            make_up(spec, signature, size, largest, seed, hints)
            for seed, (size, largest) in enumerate((s, f) for s in sizes for f in (False, True))
        ]
    )


def _from_files(
    spec: Spec, signature: Signature, field: str, files: SampleFiles, most: int | None = None
) -> PreparedSamples:
    prepared = prepare(spec, signature, field, files, most)
    name = prepared.rows.name if prepared.rows else ""
    return replace(prepared, batches=_checked_batches(spec, signature, prepared.batches, field, name))


def read_calibration(spec: Spec, signature: Signature) -> list[Batch]:
    """Batches of real input of `optimize.calibration`.

    BuildError if it is missing, or its data are empty, misshapen or not finite.
    """
    field, given = "optimize.calibration", spec.model.optimize.calibration
    if isinstance(given, SampleFiles):
        read = _from_files(spec, signature, field, given).batches
    else:
        read = _from_hook(spec, signature, field, _hook(spec, "calibration"))
    _hold_to_finite(spec, field, read)
    return read


def hook_training(spec: Spec, signature: Signature) -> list[tuple[Batch, Any]]:
    """Pairs (batch, targets) that `optimize.training` returns; targets are an array with an entry per item, or None."""
    field, hook = "optimize.training", _hook(spec, "training")
    returned = load_hook(spec, hook, field)()
    pairs = isinstance(returned, Sequence) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in returned)
    if not pairs or not returned:
        raise BuildError(
            f"{spec.file} {field}",
            found=f"{hook} returned " + ("no batch" if pairs else type(returned).__name__),
            wanted="a list of (batch, targets): a dict of input name -> array, and an array or None",
        )
    given = _checked_batches(spec, signature, [batch for batch, _ in returned], field, hook)
    _hold_to_finite(spec, field, given)
    for place, (batch, (_, targets)) in enumerate(zip(given, returned, strict=True)):
        if targets is not None and len(targets) != count_items(batch):
            raise BuildError(
                f"{spec.file} {field}",
                found=f"batch {place} has {count_items(batch)} items and {len(targets)} targets",
                wanted="one target for each item",
            )
    return list(zip(given, (targets for _, targets in returned), strict=True))


def _hook(spec: Spec, key: str) -> str:
    hook: str | None = getattr(spec.model.optimize, key)
    if hook is None:
        raise BuildError(
            f"{spec.file} optimize.{key}",
            found="it is not given",
            wanted=f"{key} data for this variant: real input, other than quality.samples",
            todo=_OTHER_SOURCES.get(key, "")
            + f"write a function in the model's folder and name it: {key}: data:{key}_batches",
        )
    return hook


def _from_hook(spec: Spec, signature: Signature, field: str, hook: str) -> list[Batch]:
    returned = load_hook(spec, hook, field)()
    given = [returned] if isinstance(returned, dict) else returned
    return _checked_batches(spec, signature, given, field, hook)


def _checked_batches(spec: Spec, signature: Signature, batches: Any, field: str, hook: str) -> list[Batch]:
    """Batches that a hook returned, checked against the network's inputs and copied in C order."""
    listed = isinstance(batches, Sequence)
    if not listed or not batches or not all(isinstance(batch, dict) for batch in batches):
        empty = listed and not batches
        raise BuildError(
            f"{spec.file} {field}",
            found=f"{hook} returned " + ("no batch" if empty else type(batches).__name__),
            wanted="a list of batches, each a dict of input name -> array with the batch axis first",
        )
    return [_checked(spec, signature, place, batch, field) for place, batch in enumerate(batches)]


def first_items(given: Sequence[Batch], count: int | None, batched: bool) -> list[Batch]:
    """The first `count` items (None: all); the last batch is cut. Without a batch axis each batch is an item."""
    if count is None or not batched:
        return list(given[:count])
    taken: list[Batch] = []
    for batch in given:
        if count <= 0:
            break
        taken.append({name: array[:count] for name, array in batch.items()})
        count -= count_items(batch)
    return taken


def said_shapes(batch: Batch) -> str:
    """The shapes of a batch as text: `ids [2, 128], mask [2, 128]`."""
    return ", ".join(f"{name} {list(array.shape)}" for name, array in batch.items())


def cannot_run(where: str, engine: str, batch: Batch, reason: str) -> BuildError:
    """The error for a batch that an engine does not accept."""
    return BuildError(
        where,
        found=f"{engine} cannot run it on {said_shapes(batch)}: {reason}",
        wanted="a network that runs at every batch and axis size the spec allows",
    )


def count_items(batch: Batch) -> int:
    """Items of a batch; 1 for arrays without an axis."""
    array = next(iter(batch.values()))
    return int(array.shape[0]) if array.ndim else 1


def each_item(given: Sequence[Batch]) -> list[Batch]:
    """The items of batches as batches of one."""
    return [
        {name: array[row : row + 1] for name, array in batch.items()}
        for batch in given
        for row in range(count_items(batch))
    ]


def _checked(spec: Spec, signature: Signature, place: int, batch: Batch, field: str) -> Batch:
    """One batch of the hook, copied in C order; BuildError for the first input that does not fit."""
    import numpy as np

    where = f"{spec.file} {field}"
    names = [tensor.name for tensor in signature.inputs]
    if set(batch) != set(names):
        raise BuildError(where, found=f"batch {place} has the names {sorted(map(str, batch))}", wanted=f"{names}")
    counts: set[int] = set()
    batch = dict(batch)
    for tensor in signature.inputs:
        array = batch[tensor.name]
        if not tensor.shape and not signature.batched:
            array = batch[tensor.name] = _scalar(array)
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
    # numpy has no bfloat16 of its own: float32 holds each of its values.
    wide = {tensor.name: "float32" for tensor in signature.inputs if tensor.dtype == "BF16"}
    texts = {tensor.name for tensor in signature.inputs if tensor.dtype == "BYTES"}
    return {
        name: _as_texts(batch[name]) if name in texts else np.array(batch[name], wide.get(name), order="C")
        for name in names
    }


def _as_texts(array: Any) -> Any:
    """The array as text objects, which ONNX Runtime takes; bytes are read as UTF-8."""
    import numpy as np

    items = [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in array.flat]
    return np.array(items, object).reshape(array.shape)


def _scalar(value: Any) -> Any:
    """The value of a tensor without axes, which callers send as [1] because Triton has no rank 0."""
    import numpy as np

    array = np.asarray(value) if isinstance(value, np.generic) else value
    return array.reshape(()) if isinstance(array, np.ndarray) and array.size == 1 else array


def _fits(array: Any, tensor: TensorInfo, batched: bool) -> bool:
    """Whether dtype and shape fit; BYTES may come as text or bytes, BF16 as float32 or as bfloat16 of ml_dtypes."""
    shape = array.shape[1:] if batched else array.shape
    dtype = NUMPY_DTYPES.get(tensor.dtype)
    dtype_fits = (
        array.dtype == dtype
        if dtype
        else str(array.dtype) in ("float32", "bfloat16")
        if tensor.dtype == "BF16"
        else array.dtype.kind in "OSU"
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


def _hold_to_finite(spec: Spec, field: str, given: Sequence[Batch]) -> None:
    import numpy as np

    for place, batch in enumerate(given):
        for name, array in batch.items():
            if not np.issubdtype(array.dtype, np.floating) or np.isfinite(array).all():
                continue
            count = int((~np.isfinite(array)).sum())
            raise BuildError(
                f"{spec.file} {field}",
                found=f"batch {place} has {count} of {array.size} elements of {name} that are NaN or infinite",
                wanted="finite numbers, by which ranges can be found",
            )
