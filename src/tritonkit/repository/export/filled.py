"""Inputs of an ONNX file that callers do not send: the file fills them itself, in the shape of another input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError, SpecError
from tritonkit.extras import need
from tritonkit.repository.export.onnx_file import copy_model
from tritonkit.repository.modelspec import Spec

__all__ = ["fill_inputs", "filled_copy"]


def filled_copy(spec: Spec, source: Path, folder: Path) -> Path:
    """A copy of the spec's ONNX file in `folder`, with the inputs of `network.fill` as constants."""
    onnx, where = need("onnx", "build"), f"{spec.file} network.fill"
    copy_model(source, folder, source.name, f"{spec.file} network.onnx")
    file = folder / source.name
    model = onnx.load(file, format="protobuf", load_external_data=False)
    fill_inputs(model, spec.model.network.fill, where)
    file.write_bytes(model.SerializeToString())
    return file


def fill_inputs(model: Any, values: dict[str, int | float], where: str) -> None:
    """Replace inputs of a parsed model by tensors of one value, in the inputs' shapes.

    Raises:
        SpecError: the file has no input of a given name.
        BuildError: no other input has the free sizes of a filled input.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in constants]
    if unknown := sorted(set(values) - set(names)):
        raise SpecError(f"{where}.{unknown[0]}", found="the file has no such input", wanted=f"one of {names}")
    filled = [value for value in graph.input if value.name in values]
    for value in filled:
        graph.input.remove(value)
    sources = [value for value in graph.input if value.name not in constants]
    nodes = [node for v in filled for node in _nodes(model, v, values[v.name], sources, where)]
    for node in reversed(nodes):
        graph.node.insert(0, node)


def _nodes(model: Any, value: Any, number: float, sources: list[Any], where: str) -> list[Any]:
    """Operators that make a tensor of one value, under the input's name."""
    import numpy as np

    onnx = need("onnx", "build")
    helper, own = onnx.helper, f"tritonkit_fill_{value.name}"
    kind = value.type.tensor_type.elem_type
    if kind == onnx.TensorProto.STRING:
        raise SpecError(f"{where}.{value.name}", found="a text input", wanted="an input of numbers")
    array = np.array([number], helper.tensor_dtype_to_np_dtype(kind))
    constant = onnx.numpy_helper.from_array(array)
    dims = value.type.tensor_type.shape.dim
    nodes, sizes = [], []
    for place, dim in enumerate(dims):
        size = f"{own}_{place}"
        if dim.HasField("dim_value"):
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([dim.dim_value], np.int64), size))
        else:
            source, axis = _source(value, place, sources, where)
            index = f"{size}_index"
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([axis], np.int64), index))
            nodes += [
                helper.make_node("Shape", [source], [f"{size}_shape"]),
                helper.make_node("Gather", [f"{size}_shape", index], [size]),
            ]
        sizes.append(size)
    if sizes:
        nodes.append(helper.make_node("Concat", sizes, [f"{own}_sizes"], axis=0))
    else:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(0, np.int64), f"{own}_sizes"))
    return [*nodes, helper.make_node("ConstantOfShape", [f"{own}_sizes"], [value.name], value=constant)]


def _source(value: Any, place: int, sources: list[Any], where: str) -> tuple[str, int]:
    """The input, and the axis of it, that has the size of a free axis.

    It is an axis of the same name; for an unnamed axis, the same position in an input with as many axes.
    """
    axis_name = value.type.tensor_type.shape.dim[place].dim_param
    rank = len(value.type.tensor_type.shape.dim)
    for source in sources:
        dims = source.type.tensor_type.shape.dim
        for axis, dim in enumerate(dims):
            if axis_name and dim.dim_param == axis_name:
                return source.name, axis
    for source in sources:
        dims = source.type.tensor_type.shape.dim
        if len(dims) == rank and not axis_name and not dims[place].HasField("dim_value"):
            return source.name, place
    raise BuildError(
        f"{where}.{value.name}",
        found=f"no other input has the size of its axis {place} ({axis_name or 'which has no name'})",
        wanted="an input of the same shape, from which the size is taken",
        todo="export the network without that input",
    )
