"""A float network with some operators in FP16 or BF16, written, or imitated in FP32 with every value rounded.

ONNX Runtime's CPU provider computes FP16 operators in FP32 and rounds only where it must. So values
that overflow on a GPU do not overflow there. An operator's cost in closeness is therefore measured on the imitation.
There each tensor is converted to FP16 and back to FP32, as between two operators on a GPU. BF16 operators do not run on
a CPU at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tritonkit.extras import need
from tritonkit.repository.optimize.variants.onnx_graph import Graph

__all__ = ["FP16", "LARGEST", "Half", "Number"]

LARGEST = 65504.0
"""Largest FP16 number."""
_OWN_DTYPE = {"Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"}
"""Operators whose output's dtype does not follow from their input's."""
_ANY_DTYPE = {"Shape", "Size"}
"""Operators that do not look at the values."""


@dataclass(frozen=True)
class Number:
    """A number format of 16 bits.

    Args:
        name: ONNX's name of it.
        operators: the operators that compute in it -> the first opset of each; None for all that the schemas allow and
            ONNX Runtime's converter does not block.
    """

    name: str
    operators: Mapping[str, int] | None = None

    @property
    def type_name(self) -> str:
        """Its name in the schemas of operators."""
        return f"tensor({self.name.lower()})"

    def takes(self, operator: str, opset: int) -> bool:
        """Whether an operator of ONNX's own domain computes in it."""
        if self.operators is not None:
            return self.operators.get(operator, opset + 1) <= opset
        return operator not in need("onnxruntime.transformers.float16", "build").DEFAULT_OP_BLOCK_LIST

    def constant(self, array: Any, name: str, imitated: bool) -> Any:
        """An initializer of a float array in this format; with `imitated` a float one with its rounded values."""
        import numpy as np

        half = np.float16 if self.name == "FLOAT16" else need("ml_dtypes", "build").bfloat16
        with np.errstate(over="ignore"):  # such a node is among `floats`, unless it is just tried
            values = np.asarray(array).astype(half)
        values = values.astype(np.float32) if imitated else values
        return need("onnx", "build").numpy_helper.from_array(values, name)


FP16 = Number("FLOAT16")


class Half:
    """The parts of a float model (an onnx.ModelProto) that can have 16 bits, and the model with some of them so.

    `number` is their format; where these methods speak of FP16, they mean it.
    """

    def __init__(self, model: Any, number: Number = FP16) -> None:
        onnx = need("onnx", "build")
        self._model = onnx.shape_inference.infer_shapes(model)  # for dtypes: sizes do not count
        self._graph = Graph(self._model)
        graph = self._model.graph
        values = [*graph.value_info, *graph.input, *graph.output]
        self._dtypes = {value.name: value.type.tensor_type.elem_type for value in values}
        self._dtypes |= {tensor.name: tensor.data_type for tensor in graph.initializer}
        self._number = number
        self._float, self._half = onnx.TensorProto.FLOAT, getattr(onnx.TensorProto, number.name)
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
        weights = [self._graph.float_weight(node.input[place]) for place in self._halves[name]]
        return [array for array in weights if array is not None]

    def write(self, floats: Collection[str], *, imitated: bool = False) -> Any:
        """The model in FP16 except the operators `floats`; inputs and outputs stay FP32.

        With `imitated` all of it is FP32, and each value that would be FP16 is rounded to FP16.
        """
        onnx = need("onnx", "build")
        nodes: list[Any] = []
        constants: dict[str, Any] = {}
        taken: dict[str, str] = {}  # tensor -> its name as FP16 nodes take it
        halves = {name: places for name, places in self._halves.items() if name not in floats}

        def cast(name: str, out: str, to: int) -> str:
            nodes.append(onnx.helper.make_node("Cast", [name], [out], to=to))
            return out

        def as_half(name: str) -> str:
            if name not in taken and (array := self._graph.float_weight(name)) is not None:
                taken[name] = f"{name}/half"
                constants[name] = self._number.constant(array, taken[name], imitated)
            elif name not in taken:
                taken[name] = cast(name, f"{name}/half", self._half)
                if imitated:
                    taken[name] = cast(taken[name], f"{name}/rounded", self._float)
            return taken[name]

        for node in self._graph.nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            places = halves.get(node.name, [])
            for place in places:
                copy.input[place] = as_half(node.input[place])
            if node.op_type in _ANY_DTYPE:
                copy.input[0] = taken.get(node.input[0], node.input[0])
            nodes.append(copy)
            for place, name in enumerate(node.output if places else ()):
                if self._dtypes.get(name) != self._float:
                    continue
                made = copy.output[place] = f"{name}/given"
                taken[name] = name if imitated else made
                if imitated:
                    made = cast(made, f"{name}/half", self._half)
                if imitated or self._needs_float(name, halves):
                    cast(made, name, self._float)
        return self._graph.with_nodes(nodes, constants.values())

    def _needs_float(self, name: str, halves: Mapping[str, list[int]]) -> bool:
        """Whether anything uses a tensor as FP32: the graph's outputs, a node, or a node's subgraph."""
        for user in self._graph.users.get(name, ()):
            places = {place for place, given in enumerate(user.input) if given == name}
            if user.op_type not in _ANY_DTYPE and not (places and places <= set(halves.get(user.name, ()))):
                return True
        return name in self._graph.outputs

    def _places(self, node: Any) -> list[int]:
        """Indices of the inputs that are FP16 when a node is FP16; none for a node that cannot be.

        Its outputs must all have the dtype of such an input, by the operator's schema.
        """
        onnx = need("onnx", "build")
        kind, version = node.op_type, self._version(node.domain)
        own = node.domain or kind in _OWN_DTYPE or not self._number.takes(kind, version)
        if own or any(a.HasField("g") or len(a.graphs) for a in node.attribute):
            return []
        if not onnx.defs.has(kind, version, ""):
            return []
        schema = onnx.defs.get_schema(kind, version, "")
        allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        both = {"tensor(float)", self._number.type_name}
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
        # The outputs of custom operators, and what follows from them, have no known dtype.
        typed = all(name in self._dtypes for name in (*node.input, *node.output) if name)
        follow = all(variable(schema.outputs, place) in followed for place in floats)
        return places if floats and typed and follow else []

    def _version(self, domain: str) -> int:
        return next((e.version for e in self._model.opset_import if e.domain == domain), 1)
