"""A user's ONNX file with the sizes that its spec gives: fixed ones are written into it, and a batch axis is freed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonkit.repository.export.onnx_file import copy_model, parse
from tritonkit.repository.modelspec import Spec

__all__ = ["adapt", "adapted_copy", "holds_one_item"]


def holds_one_item(model: Any, spec: Spec) -> bool:
    """Whether every input of a file is one item of the spec with an axis of size 1 in front, as an export without a
    free batch axis has it.

    Outputs may have a free axis there: exporters write one where they do not know the size.
    """
    declared = spec.model.network.inputs
    values = {value.name: _dims(value) for value in _inputs(model)}
    if not declared or set(declared) != set(values):
        return False
    items = all(len(values[name]) == len(tensor.dims) + 1 for name, tensor in declared.items())
    outputs = [_first(_dims(value)) for value in model.graph.output]
    return items and all(_first(dims) == 1 for dims in values.values()) and {1, -1}.issuperset(outputs)


def adapt(model: Any, spec: Spec, *, free: bool) -> bool:
    """Write the input sizes that a spec fixes into a parsed file, in place; return whether it changed.

    Engines then know the sizes of the outputs, too. With `free`, the first axis of every input and output becomes a
    free one. Shapes of tensors inside a freed network go: they have the size 1, and engines infer them again.
    """
    changed = free
    for value in _inputs(model):
        dims, tensor = _dims(value), spec.model.network.inputs.get(value.name)
        if tensor is None or not 0 <= len(dims) - len(tensor.dims) <= 1:
            continue  # checks name it
        for dim, size in zip(reversed(dims), reversed(tensor.dims), strict=False):
            if size > 0 and not dim.HasField("dim_value"):
                dim.dim_value = size
                changed = True
    if free:
        for value in (*_inputs(model), *model.graph.output):
            _dims(value)[0].Clear()
        del model.graph.value_info[:]
    return changed


def adapted_copy(source: Path, spec: Spec, folder: Path, where: str) -> tuple[Path, bool]:
    """The file with the spec's sizes, a copy in `folder` if that changes it, and whether it was exported for one item.

    Args:
        source: the file, which may lie in `folder` already.
        spec: the spec, with `network.inputs`.
        folder: a folder for the copy.
        where: the field of the spec, for errors.
    """
    model = parse(source, where)
    free = spec.model.serving.max_batch_size != 0 and holds_one_item(model, spec)
    if not adapt(model, spec, free=free):
        return source, False
    file = folder / source.name
    if source != file:
        copy_model(source, folder, source.name, where)
    model = parse(file, where)  # the copy's weights may lie in files of other names
    adapt(model, spec, free=free)
    file.write_bytes(model.SerializeToString())
    return file, free


def _inputs(model: Any) -> list[Any]:
    initial = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initial]


def _dims(value: Any) -> Any:
    return value.type.tensor_type.shape.dim


def _first(dims: Any) -> int:
    """The size of the first axis: -1 if it is free, 0 if there is none."""
    if not dims:
        return 0
    return dims[0].dim_value if dims[0].HasField("dim_value") else -1
