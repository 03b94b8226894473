"""PyTorch -> ONNX by the torch.export exporter, with the batch and the named axes free."""

from __future__ import annotations

import re
import traceback
from itertools import count
from pathlib import Path
from typing import Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.external_data import MAX_WEIGHT_BYTES
from tritonkit.repository.export.quiet import quiet
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.export.torch_module import to_tensors
from tritonkit.repository.modelspec import FreeAxis, Spec

__all__ = ["dynamic_shapes", "explain", "export_onnx", "hold_to_free_inputs"]


def export_onnx(spec: Spec, module: Any, example: Batch, batched: bool, file: Path) -> None:
    """Write `module` as an ONNX file.

    `example` has at least 2 items and 2 elements along each free axis: torch.export takes a size of
    0 or 1 for a constant (https://pytorch.org/docs/stable/export.html, 0/1 specialization).
    BuildError when the network cannot be traced, for one whose output shape depends on data too.
    """
    torch = need("torch", "build")
    need("onnxscript", "build")
    network = spec.model.network
    try:
        with quiet():
            program = torch.onnx.export(
                module,
                to_tensors(spec, example),
                dynamo=True,
                dynamic_shapes=dynamic_shapes(torch, spec, batched),
                input_names=list(network.inputs),
                output_names=list(network.outputs),
                opset_version=network.opset,
                verbose=False,
            )
    except Exception as error:
        raise explain(spec, error) from error
    _free_names(program.model.graph)
    if batched:  # else each request has its own shape
        _hold_to_static_outputs(spec, program)
    hold_to_free_inputs(spec, program.model.graph, batched)
    _free_outputs(spec, program.model.graph, batched)
    constants = (value.const_value for value in program.model.graph.initializers.values())
    weights = sum(tensor.nbytes for tensor in constants if tensor is not None)
    program.save(file, external_data=weights > MAX_WEIGHT_BYTES)


def _free_names(graph: Any) -> None:
    """Rename inner tensors that have the name of an input or output.

    The exporter names them after operators and parameters, such as `embedding`, and does not look for these names when
    it gives inputs and outputs those of the spec.
    """
    outer = {id(value): value.name for value in (*graph.inputs, *graph.outputs)}
    inner = [*graph.initializers.values(), *(value for node in graph.all_nodes() for value in node.outputs)]
    taken = {value.name for value in inner} | set(outer.values())
    for value in inner:
        if id(value) not in outer and value.name in outer.values():
            value.name = next(name for n in count() if (name := f"{value.name}_{n}") not in taken)
            taken.add(value.name)


def dynamic_shapes(torch: Any, spec: Spec, batched: bool) -> tuple[dict[int, Any], ...]:
    """For each input, in order: axis -> torch.export.Dim; axes of the same name have the same size everywhere."""
    network = spec.model.network
    # The axis has no bounds: the file may not depend on max_batch_size, which can change without a build.
    batch = torch.export.Dim("batch")
    axes = {name: _dim(torch, name, a) for name, a in network.free_axes.items()}
    lead = 1 if batched else 0
    shapes = []
    for tensor in network.inputs.values():
        free = {0: batch} if batched else {}
        for position, size in enumerate(tensor.shape):
            if isinstance(size, str):
                free[position + lead] = axes[size]
        shapes.append(free)
    return tuple(shapes)


def _dim(torch: Any, name: str, axis: FreeAxis) -> Any:
    """The torch.export.Dim of an axis. If its sizes are multiples, it is a multiple of another Dim, as torch.export
    requires."""
    factor = axis.multiple_of
    if factor == 1:
        return torch.export.Dim(name, min=axis.min, max=axis.max)
    return factor * torch.export.Dim(f"_{name}", min=axis.min // factor, max=axis.max // factor)


def hold_to_free_inputs(spec: Spec, graph: Any, batched: bool) -> None:
    """Raise BuildError for a free input axis that the exporter silently fixed to the example's size."""
    lead = 1 if batched else 0
    for value, (name, tensor) in zip(graph.inputs, spec.model.network.inputs.items(), strict=False):
        for size, axis in zip((value.shape or ())[lead:], tensor.shape, strict=False):
            if isinstance(axis, str) and isinstance(size, int):
                raise BuildError(
                    f"{spec.file} network.torch",
                    found=f"torch.export fixed the free axis {axis} of input {name} at {size}",
                    wanted="operators that run at every size of the axis",
                    todo="make it a number in network.inputs; torch.nn.LSTM exports with a free time axis where the"
                    " batch axis is free too: return outputs with the batch axis in front alone",
                )


def _free_outputs(spec: Spec, graph: Any, batched: bool) -> None:
    """Free the output sizes that the spec declares as free but the exporter fixed to the example's.

    The exporter does so behind recurrent layers, whose outputs are reshaped by traced numbers. The shapes of inner
    tensors are dropped too, because they come from the same numbers.
    """
    ir = need("onnx_ir", "build")
    lead: tuple[str | int, ...] = ("batch",) if batched else ()
    changed = False
    for output, tensor in zip(graph.outputs, spec.model.network.outputs.values(), strict=False):
        shape, declared = output.shape, (*lead, *tensor.shape)
        if shape is None or len(shape) != len(declared):
            continue
        sizes = [
            (size if isinstance(size, str) else None)
            if isinstance(old, int) and (isinstance(size, str) or size < 0)
            else old
            for old, size in zip(shape, declared, strict=True)
        ]
        if sizes != list(shape):
            output.shape = ir.Shape(sizes)
            changed = True
    if changed:
        kept = {id(output) for output in graph.outputs}
        for node in graph.all_nodes():
            for value in node.outputs:
                if id(value) not in kept:
                    value.shape = None


def _hold_to_static_outputs(spec: Spec, program: Any) -> None:
    """Check that every output size is a number or follows from input sizes."""
    axes = spec.model.network.free_axes
    names = {"batch", *axes, *(f"_{axis}" for axis in axes)}
    for output in program.model.graph.outputs:
        for position, size in enumerate(output.shape or ()):
            symbols = set(re.findall(r"[A-Za-z_]\w*", str(getattr(size, "value", size)) or ""))
            if unknown := symbols - names - {"None"}:
                raise _data_dependent(spec, f"output {output.name} axis {position} ({unknown.pop()})")


def _data_dependent(spec: Spec, what: str) -> BuildError:
    return BuildError(
        f"{spec.file} network.torch",
        found=f"the shape of {what} depends on the data, not only on the input's shape",
        wanted="output shapes that follow from input shapes: a batch must have one shape",
        todo="set serving: {max_batch_size: 0}, so that each request has its own shape; or return a fixed-size"
        " result with a mask or a count (for example topk instead of nonzero)",
    )


def explain(spec: Spec, error: Exception) -> BuildError:
    """The first cause of an export's failure, in a line, with the exporter's own words below."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if "DataDependent" in type(cause).__name__ or "data-dependent" in str(cause):
        explained = _control_flow(spec, cause) or _data_dependent(spec, "a value inside the network")
        explained.details = "\n".join(str(cause).splitlines()[:8])
        return explained
    if unknown := re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", str(cause)):
        return BuildError(
            f"{spec.file} network.torch",
            found=f"the operator {unknown[1]} has no form in ONNX",
            wanted="operators that PyTorch's exporter translates",
            todo="write it with operators that have one; or serve the module from Python: network: {python: server.py}",
        )
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return BuildError(
        f"{spec.file} network.torch",
        found=f"torch.export could not trace it: {type(cause).__name__}: {lines[0] if lines else ''}",
        wanted="a network without control flow on tensor values, whose free axes are those of the spec",
        todo="see the lines below; an axis that must be fixed is a number in network.inputs",
        details="\n".join(lines[1:12]),
    )


_DECIDES = re.compile(r"\b(if|while|assert|and|or|not|bool)\b")


def _control_flow(spec: Spec, cause: BaseException) -> BuildError | None:
    """The error for Python that decides by the values of a tensor; None where it was a shape that depends on them."""
    place = next(
        (
            frame
            for frame in reversed(traceback.extract_tb(cause.__traceback__))
            if "torch" not in Path(frame.filename).parts and frame.filename != __file__
        ),
        None,
    )
    line = (place.line or "") if place else ""
    if place is None or not (_DECIDES.search(line) or "Size-like symbols: none" in str(cause)):
        return None
    return BuildError(
        f"{spec.file} network.torch",
        found=f"control flow on values: `{line}` ({Path(place.filename).name}, line {place.lineno}) goes one way"
        " or another by the values of a tensor",
        wanted="one way for all values: the exported network has no Python in it",
        todo="write it with torch.where(condition, a, b), which computes both, or with torch.cond(condition, f, g,"
        " (x,)) or torch.while_loop; or decide in a step before the network",
    )
