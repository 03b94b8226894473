"""Types and shapes of outputs that a file leaves out: ONNX Runtime infers them, or a run shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tritonkit.datatypes import BY_ONNX
from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.artifact import Signature
from tritonkit.repository.export.made_up import make_up
from tritonkit.repository.export.probe import find_hints
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.modelspec import ModelFile, Network, Spec

__all__ = ["complete_shapes", "is_incomplete"]


def is_incomplete(model: Any) -> bool:
    """Whether an output has no type or no shape: ONNX requires them, ONNX Runtime does not."""
    return any(not v.type.tensor_type.HasField("shape") for v in model.graph.output if _is_tensor(v))


def complete_shapes(model: Any, nodes: Sequence[Any], inputs: Signature, run: Callable[[Batch], Batch]) -> None:
    """Write the missing types and shapes into the parsed model.

    Args:
        nodes: the outputs that an ONNX Runtime session of the file reports.
        inputs: the file's inputs, without a batch axis.
        run: a function that runs the file on a batch.

    Raises:
        BuildError: nothing reports a shape, and the network does not run on made-up input.
    """
    values = {node.name: node for node in nodes}
    runs: list[Batch] = []
    for value in model.graph.output:
        if not _is_tensor(value) or value.type.tensor_type.HasField("shape"):
            continue
        dims: list[int | str | None] = list(values[value.name].shape)
        if not dims:  # a scalar, or a rank that ONNX Runtime does not know
            runs = runs or _two_runs(model, inputs, run)
            shapes = [outputs[value.name].shape for outputs in runs]
            dims = [a if a == b else None for a, b in zip(*shapes, strict=True)]
        _write(value, values[value.name].type, dims)


def _is_tensor(value: Any) -> bool:
    return value.type.WhichOneof("value") in (None, "tensor_type")


def _write(value: Any, kind: str, dims: list[Any]) -> None:
    onnx = need("onnx", "build")
    name = kind.removeprefix("tensor(").removesuffix(")").upper()
    if name in BY_ONNX:
        value.type.tensor_type.elem_type = onnx.TensorProto.DataType.Value(name)
    value.type.tensor_type.shape.SetInParent()
    for size in dims:
        dim = value.type.tensor_type.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size:
            dim.dim_param = size


def _two_runs(model: Any, inputs: Signature, run: Callable[[Batch], Batch]) -> list[Batch]:
    """Outputs at two sizes of every free axis, or at one size if the network takes no other."""
    spec = Spec(Path(), ModelFile(name="file", network=Network(onnx="file.onnx")))
    try:
        hints = find_hints(spec, inputs, model, run)
        return [run(make_up(spec, inputs, 1, largest, hints=hints)) for largest in (False, True)]
    except BuildError as error:
        error.todo = (
            "export it with a shape for each output, or write them:"
            " onnx.save(onnx.shape_inference.infer_shapes(model), FILE)"
        )
        raise
