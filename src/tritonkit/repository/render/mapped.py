"""The Python model that `map:` of a pipeline becomes: it calls another model for each item of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from tritonkit.client.wire.signature import INDEPENDENT_ITEMS
from tritonkit.datatypes import DataType
from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import Independence, TensorInfo
from tritonkit.repository.modelspec import PipelineMap, PipelineModel, PipelineNetwork, Serving, Spec
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.modelspec.serving import Instances
from tritonkit.repository.render.values import ModelPlan, Port, TensorPlan
from tritonkit.resources import shipped

__all__ = ["Mapped", "check_names", "map_of"]

_FILES = ("map/model.py", "map/map_core.py", "steps/step_support.py")
_COUNTS: tuple[DataType, ...] = ("INT32", "INT64")
_LEAST_IN_FLIGHT = 64
_INSTANCES = 2
"""One calls the model while the other reads requests and joins answers."""

Made = Mapping[str, TensorInfo]
"""The tensors that earlier parts of the pipeline give, by the pipeline's names."""


@dataclass(frozen=True)
class Mapped:
    """A map as a part of its pipeline."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    over: tuple[str, ...]
    """Inputs with an axis of items, in which requests of a batch differ."""
    parameters: Mapping[str, str]
    serving: Serving
    files: Mapping[str, Path]
    independence: Independence | None
    """The verdict on the callee's items, which holds for the rows of the map; None without one."""


def map_of(entry: PipelineMap, item: Spec, callee: ModelPlan, where: str, made: Made) -> Mapped:
    """The map of an entry.

    Args:
        entry: the entry of the pipeline.
        item: the spec of what runs for each item.
        callee: that spec's model as its callers see it.
        where: the entry's place, for errors.
        made: the tensors that earlier parts give.

    Raises:
        RenderError: it is over a tensor whose number of items is fixed, or which has no axis of items; the counts are
            no numbers of items; a name is unknown; or the callee cannot be called for one item at a time.
    """
    _check_callee(item, callee, where)
    check_names(entry, callee, where)
    _check_over(entry, callee, where)
    items = _items(entry, callee, made, where)
    given = [_input(tensor, entry, made, items) for tensor in callee.inputs]
    over = tuple(port.info.name for port in given if port.tensor in entry.map.over)
    count = _count(entry, callee, made, where)
    state = cast(Literal["proven", "declared"] | None, callee.parameters.get(INDEPENDENT_ITEMS))
    return Mapped(
        inputs=(*given, *count),
        outputs=tuple(_output(tensor, entry, items) for tensor in callee.outputs),
        over=over,
        parameters={
            "callee": callee.name,
            "callee_batch_size": str(callee.max_batch_size),
            "over": ",".join(over),
            "max_in_flight": str(entry.map.max_in_flight or max(_LEAST_IN_FLIGHT, 2 * callee.max_batch_size)),
            **({"count": count[0].info.name} if count else {}),
            **_one_value(callee),
        },
        serving=entry.serving
        if entry.serving.instance_group
        else entry.serving.model_copy(update={"instance_group": (Instances(count=_INSTANCES),)}),
        files={Path(name).name: shipped(f"python_backends/{name}") for name in _FILES},
        independence=Independence(state, f"as {callee.name}") if state else None,
    )


def _check_callee(item: Spec, callee: ModelPlan, where: str) -> None:
    """Check that one request for an item has one answer that depends on nothing else."""
    if item.keeps_sequences:
        raise RenderError(
            f"{where}.map.pipeline",
            found="a part that keeps state between the requests of a sequence",
            wanted="parts without sequences: the items of a request have no order of their own",
        )
    for tensor in (*callee.inputs, *callee.outputs):
        if tensor.dtype == "BF16":
            raise RenderError(
                f"{where}.map.pipeline",
                found=f"{callee.name} has {tensor}",
                wanted="another type than BF16, which numpy does not have",
            )


def check_names(entry: PipelineNetwork | PipelineModel | PipelineMap, called: ModelPlan, where: str) -> None:
    """Check that `inputs` and `outputs` of an entry name tensors of the model that it calls."""
    for side, renamed, tensors in (("input", entry.inputs, called.inputs), ("output", entry.outputs, called.outputs)):
        names = [tensor.name for tensor in tensors]
        for name in (name for name in renamed if name not in names):
            raise RenderError(
                f"{where}.{side}s", found=f"{called.name} has no {side} {name!r}", wanted=nearest(name, names)
            )


def _check_over(entry: PipelineMap, callee: ModelPlan, where: str) -> None:
    """Check that the items' pipeline takes the tensors that the map is over."""
    taken = [entry.inputs.get(tensor.name, tensor.name) for tensor in callee.inputs]
    for name in (name for name in entry.map.over if name not in taken):
        raise RenderError(
            f"{where}.map.over",
            found=f"{name}, which the pipeline of the items does not take",
            wanted=nearest(name, taken),
            todo=f"join the two names with inputs: {{NAME: {name}}} of the entry",
        )


def _items(entry: PipelineMap, callee: ModelPlan, made: Made, where: str) -> int:
    """The number of items of a request, -1 where it is free; RenderError for tensors that have none."""
    sizes: dict[str, int] = {}
    for tensor in callee.inputs:
        name = entry.inputs.get(tensor.name, tensor.name)
        if name not in entry.map.over or name not in made:
            continue
        shape, dims = made[name].shape, tensor.client_dims
        if len(shape) != len(dims) + 1 and not (dims == (1,) and len(shape) == 1):
            raise RenderError(
                f"{where}.map.over",
                found=f"{name} {_shape(shape)}, and {callee.name} takes {tensor}",
                wanted=f"an axis of items before those of one item: {name} {_shape((-1, *dims))}",
            )
        sizes[name] = shape[0]
    fixed = {name: size for name, size in sizes.items() if size >= 0}
    if fixed and not entry.map.count:
        name, size = next(iter(fixed.items()))
        raise RenderError(
            f"{where}.map.over",
            found=f"{name} has {size} items in every request",
            wanted="a tensor whose first axis is free (-1), or the number of items that count, in map.count",
            todo="name the tensor with the number under count:, or do without map: the number of items does not change",
        )
    if len(set(fixed.values())) > 1:
        raise RenderError(
            f"{where}.map.over",
            found=" and ".join(f"{name} with {size} items" for name, size in fixed.items()),
            wanted="the same number of items in all of them",
        )
    return next(iter(fixed.values()), -1)


def _input(tensor: TensorPlan, entry: PipelineMap, made: Made, items: int) -> Port:
    name = entry.inputs.get(tensor.name, tensor.name)
    info = TensorInfo(tensor.name, tensor.dtype, tensor.client_dims, optional=tensor.optional)
    if name not in entry.map.over:
        return Port(info, name)
    # One value of each item, [1] to the callee, may be [items] or [items, 1] here.
    flat = info.shape == (1,) and not (name in made and len(made[name].shape) > 1)
    return Port(replace(info, shape=(items, *(() if flat else info.shape))), name)


def _output(tensor: TensorPlan, entry: PipelineMap, items: int) -> Port:
    dims = () if tensor.client_dims == (1,) else tensor.client_dims
    return Port(TensorInfo(tensor.name, tensor.dtype, (items, *dims)), entry.outputs.get(tensor.name, tensor.name))


def _count(entry: PipelineMap, callee: ModelPlan, made: Made, where: str) -> tuple[Port, ...]:
    """The input with the number of items that count, if the entry names it."""
    name = entry.map.count
    if name is None:
        return ()
    info = made.get(name, TensorInfo(name, "INT32", (1,)))
    if info.dtype not in _COUNTS or info.shape not in ((), (1,)):
        raise RenderError(
            f"{where}.map.count",
            found=f"{name} {info.dtype} {_shape(info.shape)}",
            wanted=f"{' or '.join(_COUNTS)} [1]: how many items of a request count",
        )
    taken = [tensor.name for tensor in callee.inputs]
    own = "count" if "count" not in taken else "map_count"
    return (Port(replace(info, name=own, optional=False), name),)


def _one_value(callee: ModelPlan) -> dict[str, str]:
    names = [tensor.name for tensor in callee.outputs if tensor.client_dims == (1,)]
    return {"one_value": ",".join(names)} if names else {}


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"
