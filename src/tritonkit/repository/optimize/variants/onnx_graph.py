"""ONNX graphs for the variants: tensors read by name, and data dropped that no runtime reads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tritonkit.extras import need
from tritonkit.repository.export.external_data import MAX_WEIGHT_BYTES, save_apart
from tritonkit.repository.export.onnx_file import open_session, session_options
from tritonkit.repository.export.quiet import quiet

_APART = "session.optimized_model_external_initializers_file_name"

__all__ = ["Graph", "name_nodes", "save", "shorten", "simplified", "tidy", "with_shapes"]


class Graph:
    """The main graph of an ONNX model, with its tensors by name as they were when it was read.

    The bodies of `If` and `Loop` are not read, except for the tensors that they take from outside.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.nodes: list[Any] = list(model.graph.node)
        given = {value.name for value in model.graph.input}
        self.weights: dict[str, Any] = {
            tensor.name: tensor for tensor in model.graph.initializer if tensor.name not in given
        }
        """Constants, as TensorProto; a constant that is also an input can be overridden and does not count."""
        self.opset = next((entry.version for entry in model.opset_import if not entry.domain), 1)
        """Version of ONNX's own operators."""
        self.outputs: set[str] = {output.name for output in model.graph.output}
        self.users: dict[str, list[Any]] = {}
        """The nodes that take each tensor; a node of a subgraph counts as the node that contains it."""
        for node in self.nodes:
            for name in dict.fromkeys([*node.input, *_captured(node)]):
                self.users.setdefault(name, []).append(node)

    def float_weight(self, name: str) -> Any:
        """A float32 constant as an array; None for any other tensor."""
        onnx = need("onnx", "build")
        tensor = self.weights.get(name)
        if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT:
            return None
        return onnx.numpy_helper.to_array(tensor)

    def with_nodes(self, nodes: Sequence[Any], constants: Iterable[Any]) -> Any:
        """A tidy model of other nodes, with the constants of this graph that they use, and the given ones."""
        model = self._shell()
        model.graph.node.extend(nodes)
        used = {name for node in nodes for name in node.input} | self.outputs
        model.graph.initializer.extend(t for name, t in self.weights.items() if name in used)
        model.graph.initializer.extend(constants)
        domains = {entry.domain for entry in model.opset_import}
        if "com.microsoft" not in domains and any(n.domain == "com.microsoft" for n in nodes):
            model.opset_import.add(domain="com.microsoft", version=1)
        tidy(model)
        return model

    def _shell(self) -> Any:
        """The model without nodes and constants, except constants that are also inputs."""
        shell = need("onnx", "build").ModelProto()
        # Copied field by field: a full copy would copy the weights for each attempt of a search.
        for source, target, left_out in (
            (self.model, shell, ("graph",)),
            (self.model.graph, shell.graph, ("node", "initializer", "value_info")),
        ):
            for field, value in source.ListFields():
                if field.name in left_out:
                    continue
                if hasattr(value, "append"):
                    getattr(target, field.name).extend(value)
                else:
                    setattr(target, field.name, value)
        given = (t for t in self.model.graph.initializer if t.name not in self.weights)
        shell.graph.initializer.extend(given)
        return shell


def _captured(node: Any) -> Iterator[str]:
    """Names that a node's subgraphs take from outside, and their own names, which do no harm."""
    for attribute in node.attribute:
        for graph in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from inner.input
                yield from _captured(inner)


def tidy(model: Any) -> None:
    """Drop data that no runtime reads.

    That is the exporter's notes, with paths of the machine it ran on; shapes that can be inferred; and constants and
    operator sets that are duplicate or unused. The model's own metadata (its `metadata_props`) stays.
    """
    graph = model.graph
    for proto in [*graph.node, *graph.initializer, *graph.input, *graph.output, graph]:
        proto.ClearField("doc_string")
        proto.ClearField("metadata_props")
    del graph.value_info[:]
    _share_constants(graph)
    read = Graph(model)
    used = set(read.users) | read.outputs | {value.name for value in graph.input}
    _keep(graph.initializer, lambda tensor: tensor.name in used)
    if not model.functions and not any(a.HasField("g") for n in graph.node for a in n.attribute):
        domains = {node.domain or "" for node in graph.node} | {""}
        _keep(model.opset_import, lambda entry: (entry.domain or "") in domains)


def _keep(protos: Any, keep: Any) -> None:
    """Delete the entries of a repeated field that are not wanted."""
    for index in reversed(range(len(protos))):
        if not keep(protos[index]):
            del protos[index]


def _drop_defaults(model: Any) -> None:
    """Delete the attributes of standard operators that only state the default."""
    onnx = need("onnx", "build")
    version = next((e.version for e in model.opset_import if not e.domain), 1)
    for node in model.graph.node:
        if node.domain or not onnx.defs.has(node.op_type, version, ""):
            continue
        defaults = onnx.defs.get_schema(node.op_type, version, "").attributes
        _keep(node.attribute, lambda attribute, defaults=defaults: not _is_default(attribute, defaults))


def _is_default(attribute: Any, defaults: Any) -> bool:
    onnx = need("onnx", "build")
    default = defaults[attribute.name].default_value if attribute.name in defaults else None
    if default is None or not default.name or default.type != attribute.type:
        return False
    value = onnx.helper.get_attribute_value
    return bool(value(default) == value(attribute))


def _share_constants(graph: Any) -> None:
    """Let every node use the first of several equal constants."""
    fixed = {value.name for value in [*graph.input, *graph.output]}
    first: dict[tuple[Any, ...], str] = {}
    same: dict[str, str] = {}
    for tensor in graph.initializer:
        # Constants in other fields than raw_data are rare and short: they stay.
        if tensor.raw_data and tensor.name not in fixed:
            key = (tensor.data_type, tuple(tensor.dims), tensor.raw_data)
            same[tensor.name] = first.setdefault(key, tensor.name)
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = same.get(name, name)


def shorten(model: Any) -> None:
    """Drop attributes that state the default, and give inner tensors short names: in a small 8-bit network
    both together are a tenth of the file.

    Inputs, outputs and nodes keep their names; a model with subgraphs keeps all.
    """
    graph = model.graph
    _drop_defaults(model)
    graph.name = "g"
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        return
    fixed = {value.name for value in [*graph.input, *graph.output]} | {""}
    names: dict[str, str] = {}

    def short(name: str) -> str:
        while name not in fixed and name not in names:
            short_name = f"{len(names):x}"
            names[name] = short_name if short_name not in fixed else f"_{short_name}"
        return names.get(name, name)

    for node in graph.node:
        node.input[:] = [short(name) for name in node.input]
        node.output[:] = [short(name) for name in node.output]
    for tensor in graph.initializer:
        tensor.name = short(tensor.name)
    for value in graph.value_info:
        value.name = short(value.name)


def name_nodes(model: Any) -> None:
    """Give every node a unique name; existing unique names stay."""
    taken: set[str] = set()
    for place, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{place}"
        while node.name in taken:
            node.name += "_"
        taken.add(node.name)


def with_shapes(model: Any) -> Any:
    """A copy with the dtypes and shapes of its inner tensors, as far as they can be inferred."""
    onnx = need("onnx", "build")
    tools = need("onnxruntime.tools.symbolic_shape_infer", "build")
    with quiet():
        try:
            return tools.SymbolicShapeInference.infer_shapes(model, auto_merge=True)
        except Exception:  # it follows sizes further than onnx does, and knows fewer operators
            return onnx.shape_inference.infer_shapes(model, data_prop=True)


def simplified(model: Any, where: str) -> Any:
    """A copy that ONNX Runtime simplified in standard operators: constants are folded, operators without effect are
    removed, and batch normalization is merged into the convolution before it."""
    ort = need("onnxruntime", "build")
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.onnx", Path(folder) / "made.onnx"
        save(model, given)
        options = session_options()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(made)
        if any(given.parent.glob("*.data")):
            options.add_session_config_entry(_APART, f"{made.name}.data")
        open_session(given, where, options=options)
        return need("onnx", "build").load(made)


def save(model: Any, file: Path) -> None:
    """Write a model as one file. If one file cannot hold its weights, most of them go into a file next to it."""
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > MAX_WEIGHT_BYTES:
        save_apart(model, file)
    else:
        need("onnx", "build").save(model, file)
