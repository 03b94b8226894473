"""Tables in an ONNX file, which bound the ids that it accepts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tritonkit.extras import need

__all__ = ["table_rows"]

_SAME_VALUES = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Slice"}


def table_rows(model: Any) -> dict[str, int]:
    """Graph input -> rows of the smallest constant table that its values index, or the number of one-hot values."""
    graph = model.graph
    constants = _small_constants(model)
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
        for name, count in _told_apart(node, comes_from, constants):
            rows[name] = min(count, rows.get(name, count))
        if node.op_type != "Gather" or node.input[1] not in comes_from:
            continue
        table = shapes.get(node.input[0], ())
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        if -len(table) <= axis < len(table):
            name = comes_from[node.input[1]]
            rows[name] = min(table[axis], rows.get(name, table[axis]))
    return rows


def _told_apart(node: Any, comes_from: Mapping[str, str], constants: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Graph inputs whose values a node turns into one-hot vectors, with the vectors' length.

    Exporters write OneHot, or a comparison with a constant range.
    """
    if node.op_type == "OneHot" and node.input[0] in comes_from and node.input[1] in constants:
        yield comes_from[node.input[0]], int(constants[node.input[1]].max())
    if node.op_type == "Equal":
        for ids, others in (node.input, reversed(node.input)):
            if ids in comes_from and others in constants and constants[others].size > 2:
                yield comes_from[ids], int(constants[others].max()) + 1


def _small_constants(model: Any) -> dict[str, Any]:
    """Small integer constants of the file, by name."""
    onnx = need("onnx", "build")
    constants: dict[str, Any] = {}
    given = [(tensor.name, tensor) for tensor in model.graph.initializer]
    for node in model.graph.node:
        if node.op_type == "Constant":
            given += [(node.output[0], a.t) for a in node.attribute if a.name == "value"]
    for name, tensor in given:
        whole = tensor.data_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
        if whole and not tensor.external_data and 0 < math.prod(tensor.dims) < 2**20:
            constants[name] = onnx.numpy_helper.to_array(tensor)
    return constants
