"""Find out what an ONNX file takes where neither it nor the spec says so: sizes of free axes, rows of tables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.export.artifact import Signature
from tritonkit.export.describe import example_keys
from tritonkit.export.made_up import Hints, axis_key, make_up, undescribed_axes
from tritonkit.export.samples import Batch
from tritonkit.spec import Spec

__all__ = ["advise", "find_hints", "table_rows"]

_SIZES = (32, 64, 224, 3, 1, 8, 16, 128, 256, 512, 640)
"""Sizes that networks take most often, then others."""
_FEWER_SIZES = (1, 32, 224)
_MAY_GIVE_NAN = {"Acos", "Acosh", "Asin", "Atanh", "Log", "Pow", "Sqrt"}
_SIZE_KEYS = ("imgsz", "image_size", "input_size", "input_shape")
"""Metadata in which exporters write the size that a network was made for; `imgsz` is ultralytics'."""
_SAME_VALUES = {
    "Cast",
    "Identity",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Transpose",
    "Expand",
    "Slice",
}


def find_hints(
    spec: Spec, signature: Signature, model: Any, run: Callable[[Batch], Batch]
) -> Hints:
    """Rows of the tables of a file, for each axis that the spec does not describe sizes at which it runs, and whether
    it wants positive numbers.

    Args:
        model: the parsed file.
        run: runs a batch, or raises BuildError.

    Raises:
        BuildError: it runs at none of the sizes that were tried; the message names the keys that help.
    """
    hints = _find_sizes(spec, signature, model, run)
    if not any(node.op_type in _MAY_GIVE_NAN for node in model.graph.node):
        return hints
    for candidate in (hints, replace(hints, positive=True)):
        if not _gives_nan(run(make_up(spec, signature, 1, False, hints=candidate))):
            return candidate
    return hints


def _gives_nan(outputs: Batch) -> bool:
    import numpy as np

    return any(a.dtype.kind == "f" and bool(np.isnan(a).any()) for a in outputs.values())


def _find_sizes(
    spec: Spec, signature: Signature, model: Any, run: Callable[[Batch], Batch]
) -> Hints:
    rows = table_rows(model)
    axes = tuple(undescribed_axes(spec, signature))
    if not axes:
        return Hints(rows=rows)
    first: BuildError | None = None
    fixed = _weight_sizes(signature, model)
    for sizes in _trials(model, axes, fixed):
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
    first.wanted = (
        "a size at which the network runs; " + ", ".join(map(str, _SIZES)) + " were tried"
    )
    raise first


def _trials(
    model: Any, axes: tuple[str, ...], fixed: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Sizes to try: first one for all axes, then, of two or three axes, different ones."""
    for size in dict.fromkeys((*_said_sizes(model), *_SIZES)):
        yield {axis: fixed.get(axis, size) for axis in axes}
    pool = {2: _SIZES[:5], 3: _FEWER_SIZES}.get(len(axes), ())
    for sizes in itertools.product(pool, repeat=len(axes)):
        yield {axis: fixed.get(axis, size) for axis, size in zip(axes, sizes, strict=True)}


def _weight_sizes(signature: Signature, model: Any) -> dict[str, int]:
    """By `axis_key`, sizes of inputs that the weights they are multiplied with ask for."""
    graph = model.graph
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    inputs = {tensor.name: tensor for tensor in signature.inputs}
    found: dict[str, int] = {}
    for node in graph.node:
        shape = weights.get(node.input[1]) if len(node.input) > 1 else None
        tensor = inputs.get(node.input[0]) if node.input else None
        if tensor is None or not shape or len(shape) < 2 or not tensor.shape:
            continue
        values = {attribute.name: attribute.i for attribute in node.attribute}
        if node.op_type in ("MatMul", "Gemm"):
            size = shape[-1] if values.get("transB") else shape[-2]
            found[axis_key(tensor, len(tensor.shape) - 1)] = size
        elif node.op_type == "Conv":
            place = 0 if signature.batched else 1
            found[axis_key(tensor, place)] = shape[1] * values.get("group", 1)
    return found


def _said_sizes(model: Any) -> Iterator[int]:
    """Sizes in the file's own metadata."""
    for entry in model.metadata_props:
        if entry.key in _SIZE_KEYS:
            numbers = [int(text) for text in re.findall(r"\d{1,5}", entry.value)]
            yield from (number for number in numbers[-1:] if number > 3)


def table_rows(model: Any) -> dict[str, int]:
    """By graph input, the rows of the smallest constant table in which its values look something up."""
    graph = model.graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        # A table may be stored in fewer bits: its shape is the same.
        if node.op_type in ("DequantizeLinear", "Cast", "Identity") and node.input[0] in shapes:
            shapes[node.output[0]] = shapes[node.input[0]]
    comes_from = {value.name: value.name for value in graph.input}
    rows: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _SAME_VALUES and node.input and node.input[0] in comes_from:
            comes_from[node.output[0]] = comes_from[node.input[0]]
        if node.op_type != "Gather" or node.input[1] not in comes_from:
            continue
        table = shapes.get(node.input[0], ())
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        if -len(table) <= axis < len(table):
            name = comes_from[node.input[1]]
            rows[name] = min(table[axis], rows.get(name, table[axis]))
    return rows


def advise(error: BuildError, spec: Spec, signature: Signature) -> BuildError:
    """The error of a network that did not run on made-up input, with the keys that describe its input."""
    error.todo = "; or ".join(filter(None, (error.todo, *example_keys(signature))))
    return error
