"""Give classifiers of ONNX files tensors as outputs: ZipMap makes a list of dictionaries, which Triton cannot send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonkit.extras import need
from tritonkit.repository.export.onnx_bounds import load_onnx
from tritonkit.repository.export.onnx_kinds import explain_unreadable
from tritonkit.text import first_line

__all__ = ["without_zipmap"]


def without_zipmap(file: Path) -> bytes:
    """The file with each ZipMap's input in the place of its output; the columns are the classes in their order.

    Raises:
        BuildError: the file is not ONNX.
    """
    onnx = need("onnx", "onnx")
    try:
        model = load_onnx(file, "")
    except Exception as error:  # protobuf's own, and those of damaged files
        raise explain_unreadable(file, "", first_line(error)) from None
    outputs = {value.name: value for value in model.graph.output}
    for place, node in enumerate(model.graph.node):
        if node.op_type != "ZipMap" or node.domain != "ai.onnx.ml" or node.output[0] not in outputs:
            continue
        output = outputs[node.output[0]]
        classes = max((len(attribute.ints) or len(attribute.strings) for attribute in node.attribute), default=0)
        identity = onnx.helper.make_node("Identity", list(node.input), list(node.output), name=node.name)
        model.graph.node[place].CopyFrom(identity)
        columns: list[Any] = ["batch", classes] if classes else ["batch", None]
        output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, onnx.TensorProto.FLOAT, columns))
    content: bytes = model.SerializeToString()
    return content
