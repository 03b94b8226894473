"""Search for input facts that neither an ONNX file nor the spec states: sizes of free axes, rows of tables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Signature
from tritonkit.repository.export.describe import example_keys
from tritonkit.repository.export.made_up import Hints, axis_key, holds_ids, make_up, undescribed_axes
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.export.tables import table_rows
from tritonkit.repository.modelspec import Spec

__all__ = ["advise", "find_hints", "table_rows"]

_SIZES = (32, 64, 224, 3, 8, 16, 128, 256, 512, 640, 48, 240, 336, 288, 384, 352, 416, 400, 1)
"""Sizes to try: those that networks take most often, then others. They include a multiple of each number up to 16, and
of the even numbers from 18 to 30. An axis of size 1 fits any other by broadcasting, so 1 is the last."""
_PAIRED_SIZES = (32, 64, 224, 3, 1)
_FEW_ROWS = 3
"""Size to try first for a free first axis of images and the like, because hundreds of images take minutes."""
_FEWER_SIZES = (1, 32, 224)
_BOUNDS = (4, 16, 256)
"""Bounds of ids without a known table, tried in turn: small ones first, in case they are sizes."""
_MAY_GIVE_NAN = {"Acos", "Acosh", "Asin", "Atanh", "Log", "Pow", "Sqrt"}
_SIZE_KEYS = ("imgsz", "image_size", "input_size", "input_shape")
"""Metadata in which exporters write the size that a network was made for; `imgsz` is ultralytics'."""


def find_hints(spec: Spec, signature: Signature, model: Any, run: Callable[[Batch], Batch]) -> Hints:
    """Facts for made-up input: rows of a file's tables, sizes at which it runs, and whether it needs positive numbers.
    The sizes are those of each axis that the spec does not describe.

    Args:
        model: the parsed file.
        run: a function that runs a batch, or raises BuildError.

    Raises:
        BuildError: the network runs at none of the sizes that were tried; the message names the keys that help.
    """
    hints = _find_sizes(spec, signature, model, run)
    hints = replace(hints, rows={**hints.rows, **_bounds(spec, signature, hints, run)})
    if not any(node.op_type in _MAY_GIVE_NAN for node in model.graph.node):
        return hints
    for candidate in (hints, replace(hints, positive=True)):
        if not _gives_nan(run(make_up(spec, signature, 1, False, hints=candidate))):
            return candidate
    return hints


def _bounds(spec: Spec, signature: Signature, hints: Hints, run: Callable[[Batch], Batch]) -> dict[str, int]:
    """Input of ids without a known table -> number of values it accepts.

    With the largest of these values the network must run, and give numbers in arrays of the same shapes. Zeros and
    ones alone are rarely typical input.
    """
    import numpy as np

    bounds: dict[str, int] = {}
    names = [t.name for t in signature.inputs if holds_ids(t) and t.name not in hints.rows]
    plain = make_up(spec, signature, 1, False, hints=hints) if names else {}
    try:
        expected = run(plain) if names else {}
    except BuildError:  # the caller that needs an answer reports it
        return {}
    for name in names:
        for bound in _BOUNDS:
            largest = min(bound - 1, np.iinfo(plain[name].dtype).max)
            outputs = _try(run, {**plain, name: np.full_like(plain[name], largest)})
            if not _is_alike(outputs, expected):
                break
            bounds[name] = int(largest) + 1
    wide = replace(hints, rows={**hints.rows, **bounds})
    if bounds and not _is_alike(_try(run, make_up(spec, signature, 1, False, hints=wide)), expected):
        return {}
    return bounds


def _try(run: Callable[[Batch], Batch], batch: Batch) -> Batch | None:
    try:
        return run(batch)
    except BuildError:
        return None


def _is_alike(outputs: Batch | None, expected: Batch) -> bool:
    return (
        outputs is not None
        and all(outputs[name].shape == array.shape for name, array in expected.items())
        and _gives_nan(outputs) <= _gives_nan(expected)
    )


def _gives_nan(outputs: Batch) -> bool:
    import numpy as np

    return any(a.dtype.kind == "f" and bool(np.isnan(a).any()) for a in outputs.values())


def _find_sizes(spec: Spec, signature: Signature, model: Any, run: Callable[[Batch], Batch]) -> Hints:
    rows = table_rows(model)
    axes = tuple(undescribed_axes(spec, signature))
    if not axes:
        return Hints(rows=rows)
    first: BuildError | None = None
    fixed = _weight_sizes(signature, model)
    for sizes in _trials(model, axes, fixed, _first_axes(signature)):
        small = {axis: (size, size) for axis, size in sizes.items()}
        large = {axis: (size, size if axis in fixed else 2 * size) for axis, size in sizes.items()}
        try:
            run(make_up(spec, signature, 1, False, hints=Hints(small, rows)))
        except BuildError as error:
            first = first or error
            continue
        try:
            run(make_up(spec, signature, 1, True, hints=Hints(large, rows)))
        except BuildError:
            return Hints(small, rows)
        return Hints(large, rows)
    assert first is not None  # noqa: S101  there are sizes to try
    first.wanted = "a size at which the network runs; " + ", ".join(map(str, _SIZES)) + " were tried"
    raise first


def _trials(
    model: Any, axes: tuple[str, ...], fixed: Mapping[str, int], first: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Sizes to try: first the same size for all axes, then different sizes if there are two or three axes."""
    for size in dict.fromkeys((*_said_sizes(model), *_SIZES)):
        if first:
            yield {axis: fixed.get(axis, first.get(axis, size)) for axis in axes}
        yield {axis: fixed.get(axis, size) for axis in axes}
    pool = {2: _PAIRED_SIZES, 3: _FEWER_SIZES}.get(len(axes), ())
    for sizes in itertools.product(pool, repeat=len(axes)):
        yield {axis: fixed.get(axis, size) for axis, size in zip(axes, sizes, strict=True)}


def _first_axes(signature: Signature) -> dict[str, int]:
    """`axis_key` -> a small size for first axes that the build does not take for a batch axis.

    Only tensors with at least two more axes count, because their first axis usually is a batch axis after all.
    """
    if signature.batched:
        return {}
    large = [tensor for tensor in signature.inputs if len(tensor.shape) > 2]
    return {axis_key(tensor, 0): _FEW_ROWS for tensor in large if tensor.shape[0] < 0}


def _weight_sizes(signature: Signature, model: Any) -> dict[str, int]:
    """`axis_key` -> the size of an input axis that the weights multiplied with it require."""
    graph = model.graph
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    inputs = {tensor.name: tensor for tensor in signature.inputs}
    sizes: dict[str, int] = {}
    for node in graph.node:
        shape = weights.get(node.input[1]) if len(node.input) > 1 else None
        tensor = inputs.get(node.input[0]) if node.input else None
        if tensor is None or not shape or len(shape) < 2 or not tensor.shape:
            continue
        values = {attribute.name: attribute.i for attribute in node.attribute}
        if node.op_type in ("MatMul", "Gemm"):
            size = shape[-1] if values.get("transB") else shape[-2]
            sizes[axis_key(tensor, len(tensor.shape) - 1)] = size
        elif node.op_type == "Conv":
            place = 0 if signature.batched else 1
            sizes[axis_key(tensor, place)] = shape[1] * values.get("group", 1)
    return sizes


def _said_sizes(model: Any) -> Iterator[int]:
    """The sizes in the file's own metadata."""
    for entry in model.metadata_props:
        if entry.key in _SIZE_KEYS:
            numbers = [int(text) for text in re.findall(r"\d{1,5}", entry.value)]
            yield from (number for number in numbers[-1:] if number > 3)


def advise(error: BuildError, spec: Spec, signature: Signature) -> BuildError:
    """The error of a network that did not run on made-up input, with the keys that describe its input."""
    error.todo = "; or ".join(filter(None, (error.todo, *example_keys(signature))))
    return error
