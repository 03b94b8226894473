"""The networks of `make gpu` as ONNX files with seeded random weights: ResNet-50, an encoder of MiniLM's size, an MLP.

They are written node by node, so that a machine without PyTorch and without a network has them in seconds. FP16 files
compute in FP16 from the first convolution or embedding on; inputs and outputs are the same as in FP32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.gpu.sizes import FULL, Size

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["QDQ_OPSET", "encoder", "mlp", "resnet", "write"]

OPSET = 17
QDQ_OPSET = 19
"""The first in which QDQ pairs have FP16 scales."""
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
_BRANCH = 0.2
"""A block's share relative to its shortcut: the sum of 16 blocks stays within FP16's range."""
_MASKED = -10000.0


@dataclass
class _Graph:
    """A graph under construction, with the random numbers of its weights."""

    dtype: str
    opset: int = OPSET
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(50))
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its output, or of its outputs."""
        names = [f"v{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, values: Any, dtype: str | None = None) -> str:
        """Add an initializer."""
        name = f"w{len(self.weights)}"
        array: NDArray[Any] = np.asarray(values, dtype or self.dtype)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int, gain: float = 1.0) -> str:
        """Add random weights whose outputs are about as large as their inputs; the last axes are summed over."""
        fan = math.prod(shape[1:])
        return self.constant(self.random.standard_normal(shape, np.float32) * gain / math.sqrt(fan))

    def convolution(self, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, gain: float = 1.4) -> str:
        """A convolution with the bias of a folded batch normalization."""
        weight = self.weight(outputs, inputs, kernel, kernel, gain=gain)
        pads = [kernel // 2] * 4
        return str(self.add("Conv", x, weight, self.constant(np.zeros(outputs)), strides=[stride] * 2, pads=pads))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """[..., inputs] -> [..., outputs]."""
        weight = self.constant(self.random.standard_normal((inputs, outputs), np.float32) / math.sqrt(inputs))
        return str(self.add("Add", self.add("MatMul", x, weight), self.constant(np.zeros(outputs))))

    def cast(self, x: str, dtype: str | None = None) -> str:
        """The same values in another type."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))
        return str(self.add("Cast", x, to=kind))

    def model(self, inputs: dict[str, tuple[int, list[Any]]], output: str, x: str, shape: list[Any]) -> Any:
        """The finished model, whose output is FP32."""
        self.nodes.append(helper.make_node("Cast", [x], [output], to=TensorProto.FLOAT))
        tensors = [helper.make_tensor_value_info(name, kind, sizes) for name, (kind, sizes) in inputs.items()]
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "network", tensors, [result], self.weights)
        # IR 10 is what ONNX Runtime 1.20 and later read.
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def resnet(dtype: str, size: Size = FULL, opset: int = OPSET) -> Any:
    """ResNet-50 v1.5 with its batch normalizations folded: pixels, uint8 [batch, 3, h, w] -> logits [batch, 1000]."""
    graph = _Graph(dtype, opset)
    mean, std = (graph.constant(255 * np.reshape(values, (3, 1, 1))) for values in (_MEAN, _STD))
    x = graph.add("Div", graph.add("Sub", graph.cast("pixels"), mean), std)
    channels = 64 // size.thin
    x = graph.add("Relu", graph.convolution(x, 3, channels, 7, 2))
    x = graph.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, (blocks, full_width) in enumerate(_STAGES):
        for block in range(blocks):
            width = full_width // size.thin
            x = _bottleneck(graph, x, channels, width, 2 if stage and not block else 1)
            channels = 4 * width
    x = graph.linear(graph.add("Flatten", graph.add("GlobalAveragePool", x)), channels, 1000)
    pixels = ["batch", 3, size.pixels, size.pixels]
    return graph.model({"pixels": (TensorProto.UINT8, pixels)}, "logits", x, ["batch", 1000])


def _bottleneck(graph: _Graph, x: str, channels: int, width: int, stride: int) -> str:
    shortcut = x
    if stride != 1 or channels != 4 * width:
        shortcut = graph.convolution(x, channels, 4 * width, 1, stride, gain=1.0)
    x = graph.add("Relu", graph.convolution(x, channels, width, 1))
    x = graph.add("Relu", graph.convolution(x, width, width, 3, stride))
    x = graph.convolution(x, width, 4 * width, 1, gain=_BRANCH)
    return str(graph.add("Relu", graph.add("Add", x, shortcut)))


def encoder(dtype: str, size: Size = FULL) -> Any:
    """A BERT encoder and a mean over its tokens: input_ids, attention_mask, int64 [batch, length] -> [batch, width]."""
    graph = _Graph(dtype)
    table = graph.constant(graph.random.standard_normal((size.vocabulary, size.width), np.float32))
    places = graph.constant(graph.random.standard_normal((size.most, size.width), np.float32))
    length = graph.add("Slice", graph.add("Shape", "input_ids"), *_whole(graph, 1), *_whole(graph, 2))
    place = graph.add("Slice", places, *_whole(graph, 0), length, *_whole(graph, 0))
    x = _normal(graph, graph.add("Add", graph.add("Gather", table, "input_ids"), place), size.width)
    mask = graph.cast("attention_mask")
    hidden = graph.add("Mul", graph.add("Sub", graph.constant(1.0), mask), graph.constant(_MASKED))
    hidden = graph.add("Unsqueeze", hidden, *_whole(graph, 1, 2, joined=True))
    for _ in range(size.layers):
        x = _layer(graph, x, hidden, size)
    weights = graph.add("Unsqueeze", mask, *_whole(graph, 2))
    summed = graph.add("ReduceSum", graph.add("Mul", x, weights), *_whole(graph, 1), keepdims=0)
    # A warm-up's mask is all zeros: nothing is divided by zero.
    count = graph.add("Max", graph.add("ReduceSum", weights, *_whole(graph, 1), keepdims=0), graph.constant(1.0))
    x = graph.add("Div", summed, count)
    free = (TensorProto.INT64, ["batch", "length"])
    inputs = {"input_ids": free, "attention_mask": free}
    return graph.model(inputs, "embedding", x, ["batch", size.width])


def _whole(graph: _Graph, *numbers: int, joined: bool = False) -> list[str]:
    """Initializers of one whole number each, or of all of them."""
    return [graph.constant(numbers, "int64")] if joined else [graph.constant([n], "int64") for n in numbers]


def _layer(graph: _Graph, x: str, hidden: str, size: Size) -> str:
    """Attention and the feed-forward part, each added to its input and normalized."""
    heads = graph.constant([0, 0, size.heads, size.width // size.heads], "int64")
    query, key, value = (
        graph.add("Transpose", graph.add("Reshape", graph.linear(x, size.width, size.width), heads), perm=axes)
        for axes in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scale = graph.constant(1 / math.sqrt(size.width // size.heads))
    scores = graph.add("Add", graph.add("Mul", graph.add("MatMul", query, key), scale), hidden)
    context = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    joined = graph.add("Transpose", context, perm=[0, 2, 1, 3])
    joined = graph.add("Reshape", joined, graph.constant([0, 0, size.width], "int64"))
    x = _normal(graph, graph.add("Add", x, graph.linear(joined, size.width, size.width)), size.width)
    y = _gelu(graph, graph.linear(x, size.width, 4 * size.width))
    return _normal(graph, graph.add("Add", x, graph.linear(y, 4 * size.width, size.width)), size.width)


def _normal(graph: _Graph, x: str, width: int) -> str:
    scale, bias = graph.constant(np.ones(width)), graph.constant(np.zeros(width))
    return str(graph.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5))


def _gelu(graph: _Graph, x: str) -> str:
    """GELU by its definition, which ONNX Runtime fuses into one operator."""
    inner = graph.add("Erf", graph.add("Div", x, graph.constant(math.sqrt(2))))
    return str(graph.add("Mul", graph.add("Mul", x, graph.add("Add", inner, graph.constant(1.0))), graph.constant(0.5)))


def mlp(dtype: str, size: Size = FULL) -> Any:
    """64 -> 128 -> 10, so small that calling it costs more than computing it."""
    del size
    graph = _Graph(dtype)
    x = graph.linear(graph.add("Relu", graph.linear(graph.cast("x"), 64, 128)), 128, 10)
    return graph.model({"x": (TensorProto.FLOAT, ["batch", 64])}, "y", x, ["batch", 10])


def write(model: Any, file: Path) -> None:
    """Check a model and write it."""
    onnx.checker.check_model(model)
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, file)
