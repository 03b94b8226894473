"""The number format of a user's ONNX file that is not FP32: INT8, INT4, FP16, BF16."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import graphs

__all__ = ["hold_to_fp32", "is_quantized", "number_format", "read_number_format"]

_DYNAMIC = {
    "DynamicQuantizeLinear",
    "MatMulInteger",
    "ConvInteger",
    "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
    "DynamicQuantizeLSTM",
}
_QOPERATOR = {"QGemm", "QAttention", "QEmbedLayerNormalization"}
_PACKED = {"MatMulNBits", "GatherBlockQuantized", "MatMulBnb4"}
_LARGE = 16
"""Fewest elements of a constant that counts as weights: smaller ones are shapes, scales and sizes."""


def number_format(model: Any) -> str:
    """`INT8 (QDQ)`, `INT8 (QOperator)`, `INT8 (dynamic)`, `INT8 (weights alone)`, `INT4 (weights alone)`, `FP16` or
    `BF16`; empty for FP32 and for models without numbers to round, such as decision trees."""
    kinds = Counter(node.op_type for graph in graphs(model) for node in graph.node)
    if any(kind.startswith("QLinear") or kind in _QOPERATOR for kind in kinds):
        return "INT8 (QOperator)"
    if kinds["QuantizeLinear"] and kinds["DequantizeLinear"]:
        return "INT8 (QDQ)"
    if _DYNAMIC & set(kinds):
        return "INT8 (dynamic)"
    if _PACKED & set(kinds):
        return f"{'INT8' if _bits(model) == 8 else 'INT4'} (weights alone)"
    if kinds["DequantizeLinear"]:
        return "INT8 (weights alone)"
    return _half(model)


def read_number_format(file: Path) -> str:
    """`number_format` of a file that is known to be an ONNX file."""
    return number_format(need("onnx", "build").load(file, load_external_data=False))


def is_quantized(number_format: str) -> bool:
    """Whether a number format uses integers."""
    return number_format.startswith("INT")


def hold_to_fp32(number_format: str, variant: str, where: str) -> None:
    """Raise BuildError for a variant that narrows FP32 numbers if the file has none."""
    form = variant.rpartition("+")[2]
    if not number_format or (not is_quantized(number_format) and not form.startswith("onnx-")):
        return
    raise BuildError(
        where,
        found=f"{form} of a file that is {number_format} already",
        wanted="an FP32 file, which this variant is made from",
        todo="serve the file as it is (serving.variant: onnx-fp32), or give the FP32 file it was made from",
    )


def _bits(model: Any) -> int:
    """Bits of packed weights; 4 if the file does not name them."""
    nodes = [node for graph in graphs(model) for node in graph.node if node.op_type in _PACKED]
    bits = [a.i for node in nodes for a in node.attribute if a.name == "bits"]
    return max(bits, default=4)


def _half(model: Any) -> str:
    """FP16 or BF16 if most weights have that format; without weights, if the inputs have it."""
    types = need("onnx", "build").TensorProto
    names = {types.FLOAT16: "FP16", types.BFLOAT16: "BF16", types.FLOAT: "", types.DOUBLE: ""}
    sizes: Counter[int] = Counter()
    for graph in graphs(model):
        for tensor in getattr(graph, "initializer", ()):
            size = 1
            for width in tensor.dims:
                size *= width
            if tensor.data_type in names and size >= _LARGE:
                sizes[tensor.data_type] += size
    if not sizes:
        inputs = [value.type.tensor_type.elem_type for value in model.graph.input]
        sizes.update(kind for kind in inputs if kind in names)
    return names[sizes.most_common(1)[0][0]] if sizes else ""
