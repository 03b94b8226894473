"""Small ONNX files of the kinds of network that a GPU runs in different ways."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model

from tritonkit.repository.export.artifact import Signature, TensorInfo

__all__ = ["write_network"]

_TYPES = {
    "FP32": TensorProto.FLOAT,
    "INT64": TensorProto.INT64,
    "UINT8": TensorProto.UINT8,
    "BYTES": TensorProto.STRING,
}
_HIDDEN = 384
_LAYERS = 32


def write_network(kind: str, signature: Signature, file: Path) -> None:
    """A file of one kind: `image` with a convolution, `int8` with one behind a QDQ pair, `encoder` of token ids, `mlp`,
    which is tiny, or `deep`.

    It has the signature's tensors. Outputs after the first copy the last input.
    """
    first, last = signature.inputs[0], signature.inputs[-1]
    nodes, weights = _KINDS[kind](first.name, signature.outputs[0].name, signature)
    nodes += [helper.make_node("Identity", [last.name], [output.name]) for output in signature.outputs[1:]]
    lead: list[Any] = ["batch"] if signature.batched else []
    graph = helper.make_graph(
        nodes,
        "net",
        [_value(tensor, lead) for tensor in signature.inputs],
        [_value(tensor, lead) for tensor in signature.outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)


def _value(tensor: TensorInfo, lead: list[Any]) -> Any:
    shape = [axis or size for size, axis in zip(tensor.shape, tensor.axis_names, strict=True)]
    return helper.make_tensor_value_info(tensor.name, _TYPES[tensor.dtype], lead + shape)


def _image(given: str, result: str, signature: Signature) -> tuple[list[Any], dict[str, Any]]:
    channels, classes = signature.inputs[0].shape[0], signature.outputs[0].shape[-1]
    weights = {"kernel": np.zeros((64, channels, 7, 7), "f"), "head": np.zeros((64, classes), "f")}
    nodes = [
        helper.make_node("Cast", [given], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Conv", ["float", "kernel"], ["maps"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["maps"], ["means"]),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], [result]),
    ]
    return nodes, weights


def _int8(given: str, result: str, signature: Signature) -> tuple[list[Any], dict[str, Any]]:
    """The network `image` with a QDQ pair before its convolution."""
    nodes, weights = _image(given, result, signature)
    nodes[1].input[0] = "rounded"
    pair = [
        helper.make_node("QuantizeLinear", ["float", "step", "zero"], ["bytes"]),
        helper.make_node("DequantizeLinear", ["bytes", "step", "zero"], ["rounded"]),
    ]
    return [nodes[0], *pair, *nodes[1:]], weights | {"step": np.array(2, "f"), "zero": np.array(0, "b")}


def _encoder(given: str, result: str, signature: Signature) -> tuple[list[Any], dict[str, Any]]:
    weights = {"table": np.zeros((100, _HIDDEN), "f"), "layer": np.zeros((_HIDDEN, _HIDDEN), "f")}
    nodes = [
        helper.make_node("Gather", ["table", given], ["rows"]),
        helper.make_node("MatMul", ["rows", "layer"], [result]),
    ]
    return nodes, weights


def _mlp(given: str, result: str, signature: Signature) -> tuple[list[Any], dict[str, Any]]:
    sizes = signature.inputs[0].shape[-1], signature.outputs[0].shape[-1]
    return [helper.make_node("MatMul", [given, "layer"], [result])], {"layer": np.zeros(sizes, "f")}


def _deep(given: str, result: str, signature: Signature) -> tuple[list[Any], dict[str, Any]]:
    """The same layer many times, so that the file is small and the work is not."""
    size, classes = signature.inputs[0].shape[-1], signature.outputs[0].shape[-1]
    names = [given, *(f"layer_{number}" for number in range(_LAYERS))]
    nodes = [helper.make_node("MatMul", [before, "layer"], [after]) for before, after in pairwise(names)]
    nodes.append(helper.make_node("MatMul", [names[-1], "head"], [result]))
    return nodes, {"layer": np.zeros((size, size), "f"), "head": np.zeros((size, classes), "f")}


_KINDS = {"image": _image, "int8": _int8, "encoder": _encoder, "mlp": _mlp, "deep": _deep}
