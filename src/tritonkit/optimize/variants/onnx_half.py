"""A float network with some operators in FP16: written, or imitated in FP32 with every value rounded.

ONNX Runtime's CPU provider computes FP16 operators in FP32 and rounds only where it must, so a value
that overflows on a GPU does not there. What an operator costs is therefore measured on the imitation,
in which each tensor becomes FP16 and FP32 again, as between two operators of a GPU.
onnxruntime.transformers.float16 is not used, because it casts to FP16 between two operators that both
stay FP32; what overflows there is lost although neither is FP16.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tritonkit.extras import need
from tritonkit.optimize.variants.onnx_graph import Graph

__all__ = ["LARGEST", "Half"]

LARGEST = 65504.0
"""Largest FP16 number."""
_OWN_DTYPE = {"Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"}
"""Operators whose output's dtype does not follow from their input's."""


_ANY_DTYPE = {"Shape", "Size"}
"""Operators that do not look at the values."""


class Half:
    """What of a float model can be FP16, and the model with some of it so.

    Args:
        model: an onnx.ModelProto; what its tensors' dtypes are is inferred.
    """

    def __init__(self, model: Any) -> None:
        onnx = need("onnx", "build")
        self._model = onnx.shape_inference.infer_shapes(model)  # for dtypes: sizes do not count
        self._graph = Graph(self._model)
        graph = self._model.graph
        values = [*graph.value_info, *graph.input, *graph.output]
        self._dtypes = {value.name: value.type.tensor_type.elem_type for value in values}
        self._dtypes |= {tensor.name: tensor.data_type for tensor in graph.initializer}
        self._float, self._half = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
        self._known = need("onnxruntime.transformers.float16", "build").DEFAULT_OP_BLOCK_LIST
        self._named = {node.name: node for node in self._graph.nodes}
        self._halves = {n.name: places for n in self._graph.nodes if (places := self._places(n))}

    @property
    def operators(self) -> list[str]:
        """Names of the nodes that can be FP16, in the graph's order."""
        return list(self._halves)

    def tensors(self, name: str) -> list[str]:
        """The activations that are FP16 when the node `name` is."""
        node = self._named[name]
        inputs = [node.input[place] for place in self._halves[name]]
        outputs = [tensor for tensor in node.output if self._dtypes.get(tensor) == self._float]
        return [tensor for tensor in [*inputs, *outputs] if tensor not in self._graph.weights]

    def constants(self, name: str) -> list[Any]:
        """The float constants that are FP16 when the node `name` is, as arrays."""
        node = self._named[name]
        found = [self._graph.float_weight(node.input[place]) for place in self._halves[name]]
        return [array for array in found if array is not None]

    def write(self, floats: Collection[str]) -> Any:
        """The model in FP16 but for the operators `floats`; inputs and outputs stay FP32."""
        return _Writer(self, set(floats), imitated=False).write()

    def imitate(self, floats: Collection[str]) -> Any:
        """The same in FP32, each value rounded to FP16 where it would be one."""
        return _Writer(self, set(floats), imitated=True).write()

    def _places(self, node: Any) -> list[int]:
        """Indices of the inputs that are FP16 when a node is; none for a node that cannot be.

        Its outputs must all have the dtype of such an input, by the operator's schema.
        """
        onnx = need("onnx", "build")
        kind, version = node.op_type, self._version(node.domain)
        own = node.domain or kind in _OWN_DTYPE or kind in self._known
        if own or any(a.HasField("g") or len(a.graphs) for a in node.attribute):
            return []
        if not onnx.defs.has(kind, version, ""):
            return []
        schema = onnx.defs.get_schema(kind, version, "")
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        both = {"tensor(float)", "tensor(float16)"}
        free = {name for name, types in allowed.items() if both <= types}

        def variable(formal: Any, place: int) -> str:
            return str(formal[min(place, len(formal) - 1)].type_str)  # the last may be variadic

        places = [
            place
            for place, name in enumerate(node.input)
            if self._dtypes.get(name) == self._float and variable(schema.inputs, place) in free
        ]
        followed = {variable(schema.inputs, place) for place in places}
        given = [(place, name) for place, name in enumerate(node.output) if name]
        floats = [place for place, name in given if self._dtypes.get(name) == self._float]
        known = all(name in self._dtypes for _, name in given)
        follow = all(variable(schema.outputs, place) in followed for place in floats)
        return places if floats and known and follow else []

    def _version(self, domain: str) -> int:
        return next((e.version for e in self._model.opset_import if e.domain == domain), 1)


class _Writer:
    """One half-precision model on its way."""

    def __init__(self, half: Half, floats: set[str], *, imitated: bool) -> None:
        self._of = half
        self._graph = half._graph
        self._floats = floats
        self._imitated = imitated
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._made: dict[tuple[str, str], str] = {}
        self._halves: set[str] = set()
        """Tensors that an FP16 node gives."""

    def write(self) -> Any:
        """The model; what it was made from stays as it is."""
        onnx = need("onnx", "build")
        for node in self._graph.nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            half = node.name in self._of._halves and node.name not in self._floats
            for place, name in enumerate(node.input):
                if half and place in self._of._halves[node.name]:
                    copy.input[place] = self._as_half(name)
                elif name in self._halves and node.op_type not in _ANY_DTYPE:
                    copy.input[place] = self._as_float(name)
            self._nodes.append(copy)
            if half:
                self._give(copy, node)
        return self._graph.with_nodes(self._nodes, self._constants.values())

    def _give(self, copy: Any, node: Any) -> None:
        """Say of an FP16 node's outputs that they are FP16; the graph's own become FP32 again."""
        for place, name in enumerate(node.output):
            if self._of._dtypes.get(name) != self._of._float:
                continue
            self._halves.add(name)
            if self._imitated or name in self._graph.outputs:
                copy.output[place] = f"{name}/given"
                if self._imitated:
                    self._cast(copy.output[place], f"{name}/half", self._of._half)
                    self._cast(f"{name}/half", name, self._of._float)
                else:
                    self._cast(copy.output[place], name, self._of._float)

    def _as_half(self, name: str) -> str:
        """A tensor as an FP16 node takes it."""
        if name in self._halves:
            given = not self._imitated and name in self._graph.outputs
            return f"{name}/given" if given else name
        if self._graph.float_weight(name) is not None:
            return self._constant(name)
        if ("half", name) not in self._made:
            self._made["half", name] = self._cast(name, f"{name}/half", self._of._half)
            if self._imitated:
                self._made["half", name] = self._cast(
                    f"{name}/half", f"{name}/rounded", self._of._float
                )
        return self._made["half", name]

    def _as_float(self, name: str) -> str:
        """What an FP16 node gave, as an FP32 node takes it."""
        if self._imitated or name in self._graph.outputs:
            return name
        if ("float", name) not in self._made:
            self._made["float", name] = self._cast(name, f"{name}/float", self._of._float)
        return self._made["float", name]

    def _constant(self, name: str) -> str:
        import numpy as np

        if name not in self._constants:
            array = self._graph.float_weight(name)
            with np.errstate(
                over="ignore"
            ):  # such a node is among `floats`, unless it is just tried
                half = np.asarray(array).astype(np.float16)
            made = half.astype(np.float32) if self._imitated else half
            from_array = need("onnx", "build").numpy_helper.from_array
            self._constants[name] = from_array(made, f"{name}/half")
        return f"{name}/half"

    def _cast(self, name: str, out: str, to: int) -> str:
        self._nodes.append(need("onnx", "build").helper.make_node("Cast", [name], [out], to=to))
        return out
