"""Read, check and run an ONNX file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tritonkit.datatypes import BY_ONNX
from tritonkit.errors import BuildError, SpecError
from tritonkit.extras import need
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.bf16 import has_bf16, run_with_bf16
from tritonkit.repository.export.external_data import data_files, flat_names, relocate, resolved_in_place
from tritonkit.repository.export.missing_shapes import complete_shapes, is_incomplete
from tritonkit.repository.export.onnx_bounds import load_onnx
from tritonkit.repository.export.onnx_kinds import (
    custom_operators,
    explain_refusal,
    explain_unreadable,
    needs_trial,
    refuse_kinds,
)
from tritonkit.repository.export.op_library import register_operators
from tritonkit.repository.export.plain_files import copy_file
from tritonkit.repository.export.samples import Batch, cannot_run
from tritonkit.repository.modelspec import Spec, Tensor
from tritonkit.repository.modelspec.base import MAX_SIZE
from tritonkit.watched import step

__all__ = [
    "batch_axis_missing",
    "check_against_spec",
    "check_file",
    "copy_model",
    "data_of",
    "fix_first_axis",
    "graphs",
    "open_session",
    "parse",
    "read_signature",
    "run_session",
    "session_options",
    "tensors",
    "write_missing_shapes",
]

_EXACT = ("mlas.enable_gemm_fastmath_arm64_bfloat16", "0")
"""Session option; with "1" ONNX Runtime multiplies FP32 matrices in bfloat16 on ARM processors that can."""


def check_file(file: Path, where: str) -> Any:
    """The parsed model, after onnx's full check, or ONNX Runtime's where onnx is stricter.

    BuildError for a file that is incomplete or cannot be served. Weights in other files are not read; `data_files`
    checks that those files lie in the ONNX file's own folder. Outputs without a shape get one.
    """
    try:
        model = parse(file, where)
        if not model.HasField("graph"):
            raise ValueError("it holds no network")
    except (OSError, BuildError):
        raise
    except Exception as error:
        raise explain_unreadable(file, where, _last_line(error)) from error
    files = data_files(tensors(model), file, where)
    refuse_kinds(model, where)
    trial = needs_trial(model, custom_operators(model, graphs(model)))
    session = None
    if trial or not _passes_checker(model, file, files):
        session = open_session(file, where, optimized=False)
    if is_incomplete(model):
        session = session or open_session(file, where, optimized=False)
        inputs = Signature(_inputs(model, where, batched=False), (), batched=False)
        complete_shapes(model, session.get_outputs(), inputs, lambda batch: run_session(session, batch, where))
    return model


def _passes_checker(model: Any, file: Path, files: dict[str, Path]) -> bool:
    """Whether onnx.checker accepts a file. It is stricter than ONNX Runtime, which decides."""
    check = need("onnx", "build").checker.check_model
    try:
        with step(f"onnx checks {file.name}"):
            if files:
                # The file is passed by path, because the checker looks for the other files in its folder.
                with resolved_in_place(file, files) as whole:
                    check(str(whole), full_check=True)
            else:
                check(model, full_check=True)
    except BuildError:
        raise
    except Exception:  # its errors have no common root
        return False
    return True


def data_of(file: Path, where: str) -> dict[str, Path]:
    """Location -> the file with weights of an ONNX file that it names; empty for a file that cannot be parsed."""
    try:
        model = parse(file, where)
    except Exception:  # the build reads it again and reports the error
        return {}
    return data_files(tensors(model), file, where)


def parse(file: Path, where: str = "") -> Any:
    """The parsed file, without the weights in other files, within the bounds of `load_onnx`.

    Some converters write a free axis as the size -1, or with the name "?" for axes of different sizes. Both become
    free axes without a name.
    """
    model = load_onnx(file, where)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0 or dim.dim_param == "?":
                dim.Clear()
    return model


def copy_model(source: Path, folder: Path, name: str, where: str) -> tuple[str, ...]:
    """Copy an ONNX file to `folder/name`, with the files of its weights next to it; return the names of those.

    The copy refers to them by plain names, whatever folders and names the original used. It does not list weights
    among the inputs: ONNX Runtime would not take them for constants, and not fuse the operators that read them.
    """
    model = parse(source, where)
    files = data_files(tensors(model), source, where)
    names = flat_names(files, name)
    for location, path in files.items():
        copy_file(path, folder / names[location])
    relocated = relocate(tensors(model), names)
    if _fix_weights(model) or relocated:
        (folder / name).write_bytes(model.SerializeToString())
    else:
        copy_file(source, folder / name)
    return tuple(names.values())


def _fix_weights(model: Any) -> bool:
    """Take weights out of the inputs, where old exporters list them; return whether there were some.

    Before version 4 of the format they had to be there, and engines take them for constants. Those that nothing reads
    go: ONNX Runtime warns of each.
    """
    initial = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in initial]
    if model.ir_version < 4 or len(kept) == len(model.graph.input):
        return False
    del model.graph.input[:]
    model.graph.input.extend(kept)
    read = {name for graph in graphs(model) for node in graph.node for name in node.input}
    read.update(value.name for graph in graphs(model) for value in graph.output if hasattr(value, "name"))
    weights = [tensor for tensor in model.graph.initializer if tensor.name in read or tensor.external_data]
    del model.graph.initializer[:]
    model.graph.initializer.extend(weights)
    return True


def write_missing_shapes(file: Path, where: str) -> None:
    """Add missing output shapes to a copy of a file, because engines and servers need them."""
    if is_incomplete(parse(file, where)):
        file.write_bytes(check_file(file, where).SerializeToString())


def graphs(model: Any) -> Iterator[Any]:
    """Every graph and function of a file, including those inside branches and loops."""
    left = [model.graph, *model.functions]
    left += [g for t in model.training_info for g in (t.initialization, t.algorithm)]
    while left:
        graph = left.pop()
        yield graph
        for attribute in (a for node in graph.node for a in node.attribute):
            left += [attribute.g, *attribute.graphs]


def tensors(model: Any) -> Iterator[Any]:
    """Every constant of a file.

    A constant may name another file, which is read when the model is loaded, wherever that file lies.
    """
    for graph in graphs(model):
        sparse = []
        if graph.DESCRIPTOR.name == "GraphProto":
            yield from graph.initializer
            sparse += graph.sparse_initializer
        for attribute in (a for node in graph.node for a in node.attribute):
            yield from (attribute.t, *attribute.tensors)
            sparse += [attribute.sparse_tensor, *attribute.sparse_tensors]
        for tensor in sparse:
            yield from (tensor.values, tensor.indices)


def _last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def batch_axis_missing(model: Any) -> str:
    """The first input or output without a free first axis, with its shape; empty if all have one."""
    initial = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initial]
    for side, values in (("input", inputs), ("output", model.graph.output)):
        for value in values:
            dims = value.type.tensor_type.shape.dim
            if not dims or dims[0].HasField("dim_value"):
                shape = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in dims]
                return f"{side} {value.name} has the shape {shape}: no free batch axis in front"
    return ""


def fix_first_axis(file: Path) -> None:
    """Set the first axis of every input and output of a file to size 1; backends check the configuration against it."""
    model = parse(file)
    initial = {tensor.name for tensor in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.output):
        if value.name not in initial:
            value.type.tensor_type.shape.dim[0].dim_value = 1
    file.write_bytes(model.SerializeToString())


def read_signature(model: Any, where: str, batched: bool) -> Signature:
    """Inputs and outputs of the file; with `batched`, axis 0 of every tensor must be free."""
    return Signature(
        inputs=_inputs(model, where, batched),
        outputs=tuple(_tensor(value, where, batched, "output") for value in model.graph.output),
        batched=batched,
    )


def _inputs(model: Any, where: str, batched: bool) -> tuple[TensorInfo, ...]:
    initial = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initial]
    return tuple(_tensor(value, where, batched, "input") for value in inputs)


def _tensor(value: Any, where: str, batched: bool, side: str) -> TensorInfo:
    onnx = need("onnx", "build")
    tensor = value.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type)
    if dtype not in BY_ONNX:
        raise BuildError(
            where, found=f"{side} {value.name} has the dtype {dtype}", wanted=f"one of {', '.join(BY_ONNX)}"
        )
    dims = [(d.dim_value, "") if d.HasField("dim_value") else (-1, d.dim_param) for d in tensor.shape.dim]
    if batched:
        if not dims or dims[0][0] != -1:
            shape = [size for size, _ in dims]
            raise BuildError(
                where,
                found=f"{side} {value.name} has the shape {shape}: no free batch axis in front",
                wanted="a first axis of free size in every input and output",
                todo="export with a dynamic batch axis, or set serving.max_batch_size: 0",
            )
        dims = dims[1:]
    if (0, "") in dims:
        raise BuildError(
            where,
            found=f"{side} {value.name} has the shape {[size for size, _ in dims]}, without elements",
            wanted="sizes of at least 1, as Triton requires",
            todo="export it with a free axis there, or make it a constant of the file"
            if side == "input"
            else "export it without that output, or take it out:"
            f" onnx.utils.extract_model(FILE, NEW_FILE, INPUTS, OUTPUTS without {value.name!r})",
        )
    sizes = tuple(size for size, _ in dims)
    if math.prod(size for size in sizes if size > 0) > MAX_SIZE:
        raise BuildError(
            where,
            found=f"{side} {value.name} has the shape {list(sizes)}: too large for a request",
            wanted=f"at most {MAX_SIZE} elements",
            todo="export it with the sizes that it takes, or with a free axis there",
        )
    return TensorInfo(value.name, BY_ONNX[dtype].name, sizes, tuple(name for _, name in dims))


def check_against_spec(signature: Signature, spec: Spec, file: str) -> Signature:
    """Check the file's inputs and outputs against the spec: names, then dtypes, then shapes.

    Return the signature with the spec's axis names, and the sizes that the spec fixes for inputs.
    """
    network = spec.model.network
    for side, declared, tensors_there in (
        ("inputs", network.inputs, signature.inputs),
        ("outputs", network.outputs, signature.outputs),
    ):
        if not declared:
            continue
        where = f"{spec.file} network.{side}"
        by_name = {tensor.name: tensor for tensor in tensors_there}
        if set(declared) != set(by_name):
            raise SpecError(
                where,
                found=f"names {sorted(declared)}",
                wanted=f"those of {file}: {sorted(by_name)}",
                todo="correct the names, or leave the section out: it is read from the file",
            )
        for name, tensor in declared.items():
            actual = by_name[name]
            if tensor.dtype != actual.dtype:
                raise SpecError(f"{where}.{name}", found=tensor.dtype, wanted=f"{actual.dtype}, as {file} has it")
            if not _same_shape(tensor.dims, actual.shape):
                raise SpecError(
                    f"{where}.{name}",
                    found=f"shape {list(tensor.shape)}",
                    wanted=f"{list(actual.shape)}, as {file} has it",
                    todo="leave serving.max_batch_size out, if requests are to leave the 1 in front out"
                    if actual.shape == (1, *tensor.dims) and spec.model.serving.max_batch_size == 0
                    else "",
                )

    return replace(
        signature,
        inputs=tuple(_named(t, network.inputs.get(t.name), narrow=True) for t in signature.inputs),
        outputs=tuple(_named(t, network.outputs.get(t.name)) for t in signature.outputs),
    )


def _named(tensor: TensorInfo, declared: Tensor | None, *, narrow: bool = False) -> TensorInfo:
    """The tensor with the spec's axis names, which `free_axes` uses, else with the file's; and with the spec's
    sizes."""
    if declared is None:
        return tensor
    own = TensorInfo.of(tensor.name, declared)
    axes = tuple(a or b for a, b in zip(own.axes, tensor.axes, strict=True))
    return replace(tensor, axes=axes, shape=own.shape if narrow else tensor.shape)


def _same_shape(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(declared) == len(shape) and all(w == f or f == -1 for w, f in zip(declared, shape, strict=True))


def session_options() -> Any:
    """onnxruntime.SessionOptions that compute FP32 as FP32 on every processor, with the spec's own operators; all other
    options extend them."""
    options = need("onnxruntime", "build").SessionOptions()
    options.add_session_config_entry(*_EXACT)
    register_operators(options)
    return options


def open_session(file: Path, where: str, optimized: bool = True, options: Any = None) -> Any:
    """An ONNX Runtime session on the CPU; `options` extend those of `session_options`."""
    ort = need("onnxruntime", "build")
    options = options or session_options()
    options.log_severity_level = 4  # errors are raised as well as logged, and probing expects errors
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        with step(f"ONNX Runtime opens {file.name}"):
            return ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise explain_refusal(file.name, where, str(error)) from error


def run_session(session: Any, batch: Batch, where: str) -> Batch:
    """Outputs by name for one batch; BF16 inputs and outputs are float32 arrays."""
    names = [output.name for output in session.get_outputs()]
    try:
        with step("ONNX Runtime runs the network"):
            if has_bf16(session):
                return run_with_bf16(session, batch)
            return dict(zip(names, session.run(names, batch), strict=True))
    except Exception as error:
        raise cannot_run(where, "ONNX Runtime", batch, _last_line(error)) from error
