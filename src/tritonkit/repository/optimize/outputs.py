"""Output shapes as the engine reports them, against which servers check a configuration.

An ONNX file declares shapes of its outputs, and engines infer them. If the two differ, ONNX Runtime uses the inferred
shape, or drops a size or all axes. The output of a run may have yet another shape. So the shapes come from the engine
that will serve, and from runs in it, and a file that declares others is corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import BuildError
from tritonkit.extras import need
from tritonkit.repository.export.artifact import Signature, TensorInfo
from tritonkit.repository.export.samples import Batch, count_items, first_items
from tritonkit.repository.optimize.runtimes.onnxruntime_cpu import OnnxRuntimeRunner
from tritonkit.repository.optimize.runtimes.openvino_cpu import OpenVINORunner

if TYPE_CHECKING:
    from tritonkit.repository.optimize.job import Job
    from tritonkit.repository.optimize.runner import Runner

__all__ = ["settle_outputs"]

Shape = tuple[int | str | None, ...]
"""Sizes: a number, the name of a free axis, or None for a free axis without a name."""

_ITEMS = (1, 2, 3)


def settle_outputs(job: Job, folder: Path, runner: Runner, signature: Signature) -> tuple[Runner, Signature]:
    """An opened variant, and the signature with its outputs' shapes. The variant is opened again if its file had to be
    corrected.

    BuildError if outputs keep contradicting the engine, or a network to be batched has a fixed batch.
    """
    if isinstance(runner, OnnxRuntimeRunner):
        return _of_onnxruntime(job, folder, runner, signature)
    if isinstance(runner, OpenVINORunner):
        return runner, _of_openvino(runner, signature)
    return runner, signature


def _of_onnxruntime(
    job: Job, folder: Path, runner: OnnxRuntimeRunner, signature: Signature
) -> tuple[Runner, Signature]:
    file = folder / "model.onnx"
    shapes = runner.output_shapes()
    actual = _seen(job, runner, signature)
    wrong = {name: _loosened(shapes[name], actual[name]) for name in shapes if name in actual}
    contradicted = {name for name, shape in wrong.items() if shape != shapes[name]}
    if signature.batched and all(-1 not in tensor.shape for tensor in signature.inputs):
        wrong = {name: _with_seen_sizes(shape, actual[name]) for name, shape in wrong.items()}
    if _correct(file, {**shapes, **wrong}, drop_inner=bool(contradicted)):
        runner = runner.reopened()
        shapes = runner.output_shapes()
        _hold(job, shapes, actual)
    where = f"{job.spec.file} output"
    if job.one_by_one:  # of a file for one item the engine knows that, too
        shapes = {name: (None, *shape[1:]) if shape[:1] == (1,) else shape for name, shape in shapes.items()}
    outputs = tuple(_described(output, shapes[output.name], signature.batched, where) for output in signature.outputs)
    return runner, replace(signature, outputs=outputs)


def _seen(job: Job, runner: Runner, signature: Signature) -> dict[str, list[tuple[int, ...]]]:
    """Output name -> its shapes for the first samples; for a batched network, with 1, 2 and 3 items."""
    seen: dict[str, list[tuple[int, ...]]] = {}
    for batch in _few(job, signature):
        try:
            outputs = runner.run(batch)
        except BuildError:  # its measurement reports that
            continue
        for name, array in outputs.items():
            seen.setdefault(name, []).append(tuple(array.shape))
    return seen


def _few(job: Job, signature: Signature) -> Iterable[Batch]:
    if not signature.batched:
        return job.samples[: len(_ITEMS)]
    most = max(job.samples, key=count_items)
    return [first_items([most], count, True)[0] for count in _ITEMS if count <= count_items(most)]


def _loosened(inferred: Shape, seen: list[tuple[int, ...]]) -> Shape:
    """The engine's shape; sizes that a run contradicts become free, and all sizes do if the rank differs."""
    ranks = {len(shape) for shape in seen}
    if ranks != {len(inferred)}:
        return (None,) * max(ranks)
    return tuple(
        None if isinstance(size, int) and any(shape[place] != size for shape in seen) else size
        for place, size in enumerate(inferred)
    )


def _with_seen_sizes(shape: Shape, seen: list[tuple[int, ...]]) -> Shape:
    """The shape of a batched output, in which a free axis has the size that it has in all runs.

    Where each input has one size, so has each output, though an engine may not infer it.
    """
    sizes = [set(axis) for axis in zip(*seen, strict=True)]
    return shape[:1] + tuple(
        next(iter(own)) if not isinstance(size, int) and len(own) == 1 and own != {0} else size
        for size, own in zip(shape[1:], sizes[1:], strict=True)
    )


def _correct(file: Path, shapes: Mapping[str, Shape], *, drop_inner: bool) -> bool:
    """Write output shapes into an ONNX file that declares others; return whether it changed.

    With `drop_inner`, the shapes of inner tensors are deleted, because wrong shapes may have been inferred from them.
    """
    onnx = need("onnx", "build")
    model = onnx.load(file, format="protobuf", load_external_data=False)
    changed = False
    for value in model.graph.output:
        declared, shape = value.type.tensor_type, shapes[value.name]
        if declared.HasField("shape") and _of_proto(declared.shape) == shape:
            continue
        declared.shape.CopyFrom(onnx.TensorShapeProto())
        for size in shape:
            axis = declared.shape.dim.add()
            if isinstance(size, int):
                axis.dim_value = size
            elif size:
                axis.dim_param = size
        changed = True
    if drop_inner:
        changed = changed or bool(model.graph.value_info)
        del model.graph.value_info[:]
    if changed:
        file.write_bytes(model.SerializeToString())
    return changed


def _of_proto(shape: Any) -> Shape:
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None
        for dim in shape.dim
    )


def _hold(job: Job, shapes: Mapping[str, Shape], seen: Mapping[str, list[tuple[int, ...]]]) -> None:
    """Raise BuildError for an output whose shape in the engine still contradicts the runs."""
    for name, inferred in shapes.items():
        if name in seen and _loosened(inferred, seen[name]) != inferred:
            raise BuildError(
                f"{job.spec.file} output {name}",
                found=f"ONNX Runtime infers the shape {_text(inferred)}, and gives {list(seen[name][-1])}",
                wanted="the true shape, because servers and clients rely on it",
                todo="export the network again, or end it with an operator that fixes the shape",
            )


def _text(shape: Shape) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _described(tensor: TensorInfo, shape: Shape, batched: bool, where: str) -> TensorInfo:
    """An output with an engine's shape; free axes keep their names."""
    if batched and (not shape or isinstance(shape[0], int)):
        raise BuildError(
            f"{where} {tensor.name}",
            found=f"ONNX Runtime infers the shape {_text(shape)}: no free batch axis in front",
            wanted="a first axis of free size in every input and output",
            todo="export with a dynamic batch axis, or set serving.max_batch_size: 0",
        )
    own = shape[1:] if batched else shape
    names = tensor.axis_names if len(tensor.shape) == len(own) else ("",) * len(own)
    return replace(
        tensor,
        shape=tuple(size if isinstance(size, int) else -1 for size in own),
        axes=tuple("" if isinstance(size, int) else name or size or "" for size, name in zip(own, names, strict=True)),
    )


def _of_openvino(runner: OpenVINORunner, signature: Signature) -> Signature:
    """The signature with OpenVINO's own sizes where it knows them, because its backend refuses free axes there."""
    shapes = runner.output_shapes(signature.batched)
    return replace(signature, outputs=tuple(_sized(tensor, shapes.get(tensor.name)) for tensor in signature.outputs))


def _sized(tensor: TensorInfo, shape: tuple[int, ...] | None) -> TensorInfo:
    if shape is None or len(shape) != len(tensor.shape):
        return tensor
    return replace(
        tensor,
        shape=tuple(size if size >= 0 else old for size, old in zip(shape, tensor.shape, strict=True)),
        axes=tuple("" if size >= 0 else axis for size, axis in zip(shape, tensor.axis_names, strict=True)),
    )
