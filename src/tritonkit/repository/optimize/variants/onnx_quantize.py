"""Write a float ONNX network with INT8 weights, whose layers compute in INT8 or only store the weights so.

Weights are int8, symmetric, with a scale per output channel; activations are uint8 with a zero point. ONNX
Runtime's x86 kernels are fastest for this pair (with int8 activations, 1.31 leaves a third of
ResNet-50's convolutions FP32). A layer is written in one of three ways:

- static: QuantizeLinear / DequantizeLinear (QDQ) pairs with calibrated ranges, placed where the runtime
  fuses them with the operators next to them: behind a Relu, around residual sums;
- dynamic: the range of each row of the activation is found at each run. DynamicQuantizeLinear would use one range
  for the whole tensor. An outlier in one item of a batch would then coarsen the answers to all others;
- weight-only: weights are INT8 in the file and dequantized when it is loaded; the layer computes in FP32.
  If even that costs too much, weights stay FP32.

docs/optimize.md explains why onnxruntime.quantization is not used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tritonkit.extras import need
from tritonkit.repository.optimize.variants.onnx_graph import shorten
from tritonkit.repository.optimize.variants.onnx_weights import WeightLayers, along, channel_axis, rounded

__all__ = ["Quantizer"]

_INT32 = 2**31 - 1
_LARGEST = 127  # largest int8 value, symmetric
_ROW_STEP, _ROW_ZERO = 1 / 127, 128
"""Step and zero point of a row divided by its largest value: uint8 1 to 255."""
_LEAST = 1e-30


@dataclass(frozen=True)
class _Scale:
    """The scale of 8-bit numbers: value = (byte - zero) * step."""

    step: float
    zero: int

    @classmethod
    def of(cls, low: float, high: float) -> _Scale:
        """The uint8 scale that covers low..high and represents zero exactly."""
        low, high = min(low, 0.0), max(high, 0.0)
        step = (high - low) / 255 or 1.0
        return cls(step, round(-low / step))


class Quantizer:
    """A writer of one INT8 model.

    Args:
        largest: the largest weight in layers that compute in INT8 (`int8_cpu`); stored weights go up to 127.
        ranges: (low, high) of each activation for static quantization; None for dynamic quantization.
        fp32: layers that compute in FP32 from INT8 weights, and embeddings whose tables stay FP32.
        fp32_weights: layers of `fp32`, and convolutions of dynamic quantization, whose weights stay FP32 too.
    """

    def __init__(
        self,
        layers: WeightLayers,
        largest: int,
        ranges: Mapping[str, tuple[float, float]] | None,
        fp32: Collection[str] = (),
        fp32_weights: Collection[str] = (),
    ) -> None:
        self._layers = layers
        self._largest = largest
        self._ranges = ranges or {}
        self._dynamic = ranges is None
        self._fp32 = set(fp32)
        self._fp32_weights = set(fp32_weights)
        self._named = {*layers.products, *layers.embeddings}
        tensors = {} if self._dynamic else layers.stored(self._fp32)
        self._int8_tensors = {name: source for name, source in tensors.items() if source in self._ranges}
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._made: dict[tuple[str, ...], Any] = {}

    def write(self) -> Any:
        """The model; its inputs, outputs and layers keep their names, and all else gets short names."""
        onnx = need("onnx", "build")
        graph = self._layers.graph
        for node in graph.nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            if node.name not in self._named:
                copy.name = ""
            self._place(copy, node)
        model = graph.with_nodes(self._nodes, self._constants)
        shorten(model)
        return model

    def _place(self, copy: Any, node: Any) -> None:
        """Add a node, with the nodes that must come before and after it."""
        if node.name in self._layers.embeddings and node.name not in self._fp32:
            self._embed(copy)
            return
        for index, name in enumerate(node.input):
            if name in self._int8_tensors:
                copy.input[index] = self._pair(name)
        if node.name in self._layers.products:
            if node.name in self._fp32 or (self._dynamic and node.op_type == "Conv"):
                if node.name not in self._fp32_weights:
                    copy.input[1] = self._weight_only(node.input[1], channel_axis(node) or 0)
            elif self._dynamic:
                self._find_range(copy)
                return
            elif node.input[0] in self._ranges:
                self._multiply(copy, node)
        self._nodes.append(copy)
        for index, name in enumerate(node.output):
            if name in self._int8_tensors and name in self._layers.graph.outputs:
                # The graph's output keeps its name, and the float node's output gets another name.
                copy.output[index] = self._name()
                self._pair(name, copy.output[index], name)

    def _multiply(self, copy: Any, node: Any) -> None:
        """Quantize a layer statically, with pairs on the input, the weights and the bias."""
        import numpy as np

        axis = channel_axis(node) or 0
        weight, scale = self._layers.int8(node.input[1], axis, self._largest)
        copy.input[0] = self._pair(node.input[0])
        step = self._scale(node.input[0]).step
        if len(node.input) > 2 and node.input[2]:
            bias = self._layers.graph.float_weight(node.input[2])
            # A bias is an int32 in steps of both scales. If it would not fit, the weights' scales grow.
            least = np.abs(bias) * (1.001 / _INT32 / step)
            if (least > scale).any():
                scale = np.maximum(scale, least).astype(np.float32)
                floats = self._layers.graph.float_weight(node.input[1])
                weight = rounded(floats, axis, scale, self._largest)
            both = (scale.astype(np.float64) * step).astype(np.float32)
            whole = np.rint(bias / both.astype(np.float64)).astype(np.int32)
            # The zero point of an int32 may be left out, and is a tenth of a small file.
            names = [self._constant(whole), self._constant(both)]
            copy.input[2] = self._add("DequantizeLinear", names, axis=0)
        names = [self._constant(a) for a in (weight, scale, np.zeros(scale.shape, np.int8))]
        copy.input[1] = self._add("DequantizeLinear", names, axis=axis)

    def _scale(self, name: str) -> _Scale:
        return _Scale.of(*self._ranges[self._int8_tensors.get(name, name)])

    def _pair(self, name: str, made: str = "", out: str = "") -> str:
        """The name of the tensor `name` after a QDQ pair; `made` is the pair's input, if that has another name."""
        import numpy as np

        if ("pair", name) not in self._made:
            affine = self._scale(name)
            scale = self._constant(np.array(affine.step, np.float32))
            zero = self._constant(np.array(affine.zero, np.uint8))
            stored = self._add("QuantizeLinear", [made or name, scale, zero])
            self._made["pair", name] = self._add("DequantizeLinear", [stored, scale, zero], out)
        return str(self._made["pair", name])

    def _find_range(self, copy: Any) -> None:
        """Quantize a layer dynamically: [..., in] -> [..., out], with a step for each row."""
        import numpy as np

        axis = channel_axis(copy) or 0
        weight, scale = self._layers.int8(copy.input[1], axis, self._largest)
        if axis == 0:  # a Gemm whose weights lie transposed
            weight = np.ascontiguousarray(weight.T)
        stored, size = self._rows(copy.input[0])
        zeros = self._constant(np.zeros(scale.shape, np.int8))
        names = [
            stored,
            self._constant(weight),
            self._constant(np.array(_ROW_STEP, np.float32)),
            self._constant(scale),
            self._constant(np.array(_ROW_ZERO, np.uint8)),
            zeros,
        ]
        # ONNX Runtime's own operator is written, because it fuses no pattern with a constant scale.
        product = self._add("MatMulIntegerToFloat", names, name=copy.name, domain="com.microsoft")
        bias = copy.input[2] if len(copy.input) > 2 else ""
        product = self._add("Mul", [product, size], "" if bias else copy.output[0])
        if bias:
            self._add("Add", [product, bias], copy.output[0])

    def _rows(self, x: str) -> tuple[str, str]:
        """Rows as uint8 [..., in], in steps of 1/127 of each row's largest absolute value, and those values
        [..., 1]."""
        import numpy as np

        if ("dynamic", x) not in self._made:
            sizes = self._add("Abs", [x])
            if self._layers.graph.opset < 18:
                largest = self._add("ReduceMax", [sizes], axes=[-1], keepdims=1)
            else:
                last = self._constant(np.array([-1], np.int64))
                largest = self._add("ReduceMax", [sizes, last], keepdims=1)
            # A row of zeros needs a divisor above 0.
            largest = self._add("Max", [largest, self._constant(np.array(_LEAST, np.float32))])
            share = self._add("Div", [x, largest])
            step = self._constant(np.array(_ROW_STEP, np.float32))
            zero = self._constant(np.array(_ROW_ZERO, np.uint8))
            self._made["dynamic", x] = self._add("QuantizeLinear", [share, step, zero]), largest
        stored, largest = self._made["dynamic", x]
        return str(stored), str(largest)

    def _weight_only(self, name: str, axis: int) -> str:
        """FP32 weights made from INT8 weights by operators that a runtime folds on loading. It would run a
        DequantizeLinear each time."""
        if ("weight-only", name, str(axis)) not in self._made:
            weight, scale = self._layers.int8(name, axis, _LARGEST)
            to = need("onnx", "build").TensorProto.FLOAT
            floats = self._add("Cast", [self._constant(weight)], to=to)
            scales = self._constant(along(scale, axis, weight.ndim))
            self._made["weight-only", name, str(axis)] = self._add("Mul", [floats, scales])
        return str(self._made["weight-only", name, str(axis)])

    def _embed(self, copy: Any) -> None:
        """Look up rows of an int8 table, in which each row has its own scale: indices [...] -> [..., width]."""
        table, scale = self._layers.int8(copy.input[0], 0, _LARGEST)
        index, out = copy.input[1], copy.output[0]
        rows = self._add("Gather", [self._constant(table), index], name=copy.name)
        scales = self._add("Gather", [self._constant(scale[:, None]), index])
        floats = self._add("Cast", [rows], to=need("onnx", "build").TensorProto.FLOAT)
        self._add("Mul", [floats, scales], out)

    def _add(self, kind: str, inputs: list[str], out: str = "", **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        out = out or self._name()
        make = need("onnx", "build").helper.make_node
        self._nodes.append(make(kind, inputs, [out], **attributes))
        return out

    def _constant(self, array: Any) -> str:
        """Add an initializer; return its name."""
        name = self._name()
        self._constants.append(need("onnx", "build").numpy_helper.from_array(array, name))
        return name

    def _name(self) -> str:
        """A new tensor name that no exporter uses; `shorten` replaces it later."""
        self._made["count",] = self._made.get(("count",), 0) + 1
        return f"bytes/{self._made['count',]}"
