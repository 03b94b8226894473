"""The operators of an ONNX network that can compute in INT8, and the tensors that then exist only in INT8."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.repository.optimize.variants.onnx_graph import Graph

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job

__all__ = ["WeightLayers", "along", "channel_axis", "rounded", "weight_layers"]

_CLAMPS = {"Relu", "Clip"}
_SAME_RANGE = {"MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Identity"}
"""Operators that only move values: their output has the range of their input."""
_OWN_RANGE = {"Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid"}
"""Operators with an 8-bit kernel, which is used if all their inputs are bytes already."""
_SMALLEST_TABLE = 4096  # fewest elements of an embedding table that is worth three small operators more


class WeightLayers:
    """The operators that hold a model's weights: Conv, Gemm, MatMul, and Gather of a large table.

    Every node of the onnx.ModelProto must have a unique name.
    """

    def __init__(self, model: Any) -> None:
        self.graph = Graph(model)
        self.products = tuple(node.name for node in self.graph.nodes if self._multiplies(node))
        """Names of the nodes that multiply with constant weights, in the graph's order."""
        self.embeddings = tuple(node.name for node in self.graph.nodes if self._embeds(node))
        """Names of the nodes that take rows of a constant table."""
        both = {*self.products, *self.embeddings}
        self.names = [node.name for node in self.graph.nodes if node.name in both]
        """Names of all these nodes, in the graph's order."""
        self._int8: dict[tuple[str, int, int], tuple[Any, Any]] = {}

    def int8(self, name: str, axis: int, largest: int) -> tuple[Any, Any]:
        """int8 weights in the float weights' shape, up to `largest`, and float32 scales [size of `axis`]; cached."""
        import numpy as np

        if (name, axis, largest) not in self._int8:
            weight = self.graph.float_weight(name)
            others = tuple(i for i in range(weight.ndim) if i != axis)
            scale = np.abs(weight).max(axis=others).astype(np.float64) / largest
            scale = np.where(scale == 0, 1.0, scale).astype(np.float32)
            self._int8[name, axis, largest] = rounded(weight, axis, scale, largest), scale
        return self._int8[name, axis, largest]

    @property
    def tensors(self) -> list[str]:
        """The activations whose ranges are needed, whichever layers stay FP32."""
        products = set(self.products)
        read = [node.input[0] for node in self.graph.nodes if node.name in products]
        return list(dict.fromkeys([*read, *self.stored(frozenset())]))

    def stored(self, floats: Collection[str]) -> dict[str, str]:
        """Tensors that exist only as bytes when the layers `floats` are FP32: name -> the tensor whose
        range it has.

        These are the outputs of a Conv, and tensors made only from such tensors: every operator that reads them reads
        bytes. A Gemm or MatMul outputs FP32, which its kernel can do at no cost and which rounds less.
        """
        stored: dict[str, str] = {}
        passed: set[str] = set()
        convolved: set[str] = set()  # outputs of a Conv, also clamped and moved
        products = set(self.products)
        for node in self.graph.nodes:
            out = node.output[0] if node.output else ""
            read = [name for name in node.input if name]
            if node.op_type not in _OWN_RANGE:
                read = read[:1]
            if node.op_type == "Conv":
                source = out if node.name in products and node.name not in floats else None
            elif not read or not all(name in stored or name in passed for name in read):
                source = None
            elif node.op_type in _SAME_RANGE and len(node.output) == 1:
                source = stored.get(read[0], out)
            else:
                source = out if node.op_type in _OWN_RANGE | _CLAMPS else None
            if source is None:
                continue
            if node.op_type == "Conv" or (read[0] in convolved and node.op_type not in _OWN_RANGE):
                convolved.add(out)
            if self._only_passed(out, out in convolved):
                passed.add(out)  # the bytes are made behind the Relu or the pooling
            else:
                stored[out] = source
        return stored

    def _only_passed(self, name: str, convolved: bool) -> bool:
        """Whether the only reader of a tensor is a Relu or, behind a Conv, an operator that moves values. That saves a
        QDQ pair, which ONNX Runtime (1.31) does not need there to fuse all into 8-bit kernels."""
        users = self.graph.users.get(name, [])
        if len(users) != 1 or name in self.graph.outputs:
            return False
        moved = users[0].op_type in _SAME_RANGE and len(users[0].output) == 1
        return users[0].op_type in _CLAMPS or (convolved and moved and users[0].input[0] == name)

    def _multiplies(self, node: Any) -> bool:
        """Whether a node multiplies an activation with weights that have a scale per channel."""
        if channel_axis(node) is None or node.domain or node.input[0] in self.graph.weights:
            return False
        weight = self.graph.float_weight(node.input[1])
        if weight is None or (weight.ndim < 3 if node.op_type == "Conv" else weight.ndim != 2):
            return False
        if len(node.input) > 2 and node.input[2]:
            bias = self.graph.float_weight(node.input[2])
            if bias is None or bias.shape != (weight.shape[channel_axis(node) or 0],):
                return False
        return node.op_type != "Gemm" or _is_plain(node)

    def _embeds(self, node: Any) -> bool:
        """Whether a node takes rows of a large constant table [rows, width]."""
        if node.op_type != "Gather" or any(a.name == "axis" and a.i for a in node.attribute):
            return False
        table = self.graph.float_weight(node.input[0])
        return table is not None and table.ndim == 2 and table.size >= _SMALLEST_TABLE


def weight_layers(job: Job, model: Any, kind: str) -> WeightLayers:
    """The layers of a job's network; BuildError if it has no layer that could be of that kind."""
    layers = WeightLayers(model)
    if not layers.names:
        raise BuildError(
            f"{job.spec.file} network",
            found=f"no operator with weights that could be {kind}: no Conv, Gemm or MatMul with constant"
            " weights, no large embedding",
            wanted="at least one, for this variant",
            todo="choose another variant",
        )
    return layers


def rounded(weight: Any, axis: int, scale: Any, largest: int) -> Any:
    """The weights as int8, in steps of the given scales."""
    import numpy as np

    whole = np.rint(weight / along(scale, axis, weight.ndim))
    return np.clip(whole, -largest, largest).astype(np.int8)


def along(vector: Any, axis: int, rank: int) -> Any:
    """The vector reshaped from [n] to [1, ..., n, ..., 1], to multiply a tensor along `axis`."""
    return vector.reshape([-1 if i == axis else 1 for i in range(rank)])


def channel_axis(node: Any) -> int | None:
    """The axis of output channels in the weights of a Conv, Gemm or MatMul; None for other operators."""
    if node.op_type == "Gemm":
        return 0 if any(a.name == "transB" and a.i for a in node.attribute) else 1
    return {"Conv": 0, "MatMul": 1}.get(node.op_type)


def _is_plain(gemm: Any) -> bool:
    """Whether a Gemm is only a product and a bias, without scaling and without a transposed input."""
    given = {a.name: a for a in gemm.attribute}
    scaled = any(name in given and given[name].f != 1.0 for name in ("alpha", "beta"))
    return not scaled and not ("transA" in given and given["transA"].i)
