"""Small ONNX files for tests, as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

__all__ = ["FLOAT", "INT64", "STRING", "node", "onnx_bytes"]

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
node = helper.make_node

Value = tuple[str, int, Any] | ValueInfoProto


def onnx_bytes(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: dict[str, Any] | None = None,
    *,
    opset: int = 13,
    ir: int = 8,
    domains: Sequence[str] = (),
) -> bytes:
    """A file with these nodes; values are (name, type, shape)."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [_value(v) for v in inputs],
        [_value(v) for v in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir).SerializeToString()


def _value(value: Value) -> ValueInfoProto:
    return value if isinstance(value, ValueInfoProto) else helper.make_tensor_value_info(*value)
