"""The shared memory that a repository's Python stubs need, and its largest request, computed before a start.

Each instance of a model that Python runs has one region. It starts at `shm-default-byte-size`, grows
by 1 MiB or more whenever a batch does not fit, and never shrinks (python_backend, shm_manager.cc).
Each growth is allocated immediately, so a file system that is too small ends a stub during service; this
module finds that beforehand. `docker run` gives a container 64 MiB unless `--shm-size` says otherwise.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from tritonkit.datatypes import BY_CONFIG
from tritonkit.errors import ServerStartError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from tritonkit.serve.repository import ServedModel

__all__ = [
    "MESSAGE_LEAST",
    "MESSAGE_MOST",
    "MIB",
    "ShmPlan",
    "StubMemory",
    "check_room",
    "dtype_name",
    "item_bytes",
    "largest_file",
    "largest_message",
    "plan",
    "tensor_bytes",
]

MIB = 1 << 20

BYTES_ELEMENT = 64 << 10
"""Bytes assumed for a BYTES value without a larger warm-up sample: an encoded photograph or a page of text."""

FREE_AXIS = 128
"""Size assumed for an open axis without a larger warm-up tensor."""

OVERHEAD = 512 << 10
"""Bytes of message queues, request records and their bookkeeping in each region."""

SLACK = 1.5
"""Factor for the gaps that freed blocks leave. Batches of changing size, with at most 2, 4, 8, 16 and 32 MiB of
tensors, grew their region to 4, 7, 15, 25 and 42 MiB (2.51, float32 echo through the python backend)."""

GROWTH = MIB
"""Bytes by which the last growth may exceed the need (`shm-growth-byte-size`)."""


MESSAGE_LEAST = 64 * MIB
"""Smallest limit on a request, whatever the models' configurations: a page of photographs, a long text."""

MESSAGE_MOST = 1024 * MIB
"""Largest limit on a request: Triton holds a message about three times while it parses it (1.9 GB took 6.2 GB,
2.51)."""

_OPEN = 4
"""Factor by which an open axis or a BYTES value may exceed the samples of the warm-up."""

_ELEMENT = MIB
"""Bytes that a BYTES value may have in any case."""


@dataclass(frozen=True)
class StubMemory:
    """The stubs of one model: their number, and the bytes that each one's region may grow to."""

    model: str
    stubs: int
    bytes_each: int


@dataclass(frozen=True)
class ShmPlan:
    """The space that a repository needs in /dev/shm.

    Args:
        models: one entry per model that Python runs.
        default_bytes: the size a region starts with (`shm-default-byte-size`). One setting holds for
            the `python` backend and for every Python-based backend, so it is the smallest need.
        total_bytes: the space that the file system must hold when every region has grown to its need.
    """

    models: tuple[StubMemory, ...]
    default_bytes: int
    total_bytes: int


def plan(models: Iterable[ServedModel], python_run: Collection[str] = ("python",), gpus: int = 1) -> ShmPlan:
    """The shared memory of a repository.

    A stub needs its largest batch, inputs and outputs together: Triton copies both through the region.

    Args:
        models: the models of the repository.
        python_run: the backends that Python stubs run.
        gpus: the number of GPUs, each of which has the instances of a group that names none.
    """
    models = list(models)
    axes = _joined_axes(models)
    needs = tuple(
        StubMemory(model.name, _instances(model, gpus), _need(model, axes))
        for model in models
        if model.backend in python_run
    )
    return ShmPlan(
        models=needs,
        default_bytes=min((need.bytes_each for need in needs), default=MIB),
        total_bytes=sum(need.stubs * need.bytes_each for need in needs),
    )


def check_room(plan: ShmPlan, folder: Path) -> None:
    """Refuse to start if the file system at `folder` has less free space than the plan needs.

    Raises:
        ServerStartError: too little space is free; the message names the models that need the most.
    """
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    if free >= plan.total_bytes:
        return
    needed = math.ceil(plan.total_bytes / MIB)
    most = sorted(plan.models, key=lambda need: -need.stubs * need.bytes_each)
    raise ServerStartError(
        str(folder),
        found=f"{free / MIB:.0f} MiB are free; the Python stubs of {len(most)} models need {needed} MiB",
        wanted=f"at least {needed} MiB",
        todo=f"mount -o remount,size={2 * needed}m {folder} (in a container: --shm-size={2 * needed}m),"
        " or lower max_batch_size or the instance counts of the models below",
        details="\n".join(f"{need.model}: {need.stubs} x {need.bytes_each / MIB:.0f} MiB" for need in most[:8]),
    )


def tensor_bytes(dtype: str, dims: Sequence[int], open_values: int, element: int) -> int:
    """Bytes of one item: `open_values` is the product of all axes of -1, `element` stands for one BYTES value."""
    count = math.prod(size for size in dims if size >= 0) * (open_values if any(size < 0 for size in dims) else 1)
    datatype = BY_CONFIG.get(dtype)
    return count * ((datatype.size if datatype else None) or element + 4)


_Axes = Mapping[tuple[str, str, int], int]
"""Model, tensor and number of an axis, from the last, which is -1 -> its size.

A part of a pipeline may batch what another has as an axis in front, such as the windows of a document.
"""


def item_bytes(
    model: ServedModel, axes: _Axes | None = None, *, outputs: bool = True, factor: int = 1, least: int = 0
) -> int:
    """Bytes of one item of a model: its inputs, and with `outputs` also those.

    Args:
        model: the model.
        axes: sizes of open axes that other models show.
        outputs: whether outputs count.
        factor: the factor by which an open axis or a BYTES value may exceed the warm-up's samples.
        least: bytes that a BYTES value may have in any case.
    """
    config, largest = model.config, largest_sample(model)
    element = max(least, factor * largest.element)
    total = 0
    for tensor in (*config.input, *(config.output if outputs else ())):
        dims = list(tensor.dims)
        if axes:
            dims = [
                axes.get((model.name, tensor.name, axis), size) if size < 0 else size
                for axis, size in enumerate(dims, -len(dims))
            ]
        open_axes = sum(size < 0 for size in dims)
        values = factor**open_axes * largest.open_values(tensor.name, open_axes)
        total += tensor_bytes(dtype_name(tensor), dims, values, element)
    return total


def _instances(model: ServedModel, gpus: int) -> int:
    """Number of a model's stubs: one for each instance, device and version."""
    # Triton's own default: 2 instances on a CPU for onnxruntime, 1 for python (model_config_utils.cc).
    stubs: int = sum((group.count or 1) * _devices(group, gpus) for group in model.config.instance_group)
    stubs = stubs or (2 if model.backend == "onnxruntime" else 1)
    return stubs * max(1, len(model.versions))


def _devices(group: Any, gpus: int) -> int:
    """Number of devices that have a group's instances: for GPUs without numbers all that there are."""
    return max(1, len(group.gpus) or (gpus if group.kind == group.KIND_GPU else 1))


def _joined_axes(models: Sequence[ServedModel]) -> _Axes:
    """The largest size that an ensemble's tensor is known to have at any of its ends, for the axes of all of them.

    The size of a step's output is often known only to the network behind it.
    """
    known = {model.name: _known_axes(model) for model in models}
    joined: dict[tuple[str, str, int], int] = {}
    for model in models:
        ends: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for step in model.config.ensemble_scheduling.step:
            for own, tensor in (*step.input_map.items(), *step.output_map.items()):
                ends[tensor].append((step.model_name, own))
        for tensor, tensors in ends.items():
            sizes: defaultdict[int, int] = defaultdict(int)
            for name, own in tensors:
                for axis, size in known.get(name, {}).get(own, {}).items():
                    sizes[axis] = max(sizes[axis], size)
            for (name, own), (axis, size) in product(tensors, sizes.items()):
                joined[name, own, axis] = max(size, joined.get((name, own, axis), 0))
            # An ensemble around this one may know less.
            known[model.name].setdefault(tensor, {}).update(sizes)
    return joined


def _known_axes(model: ServedModel) -> dict[str, dict[int, int]]:
    """The sizes of a model's axes by tensor: fixed ones, and the largest of the warm-up."""
    known: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for tensor in (*model.config.input, *model.config.output):
        known[tensor.name] = {axis: size for axis, size in enumerate(tensor.dims, -len(tensor.dims)) if size > 0}
    for warmup in model.config.model_warmup:
        for name, sample in warmup.inputs.items():
            for axis, size in enumerate(sample.dims, -len(sample.dims)):
                known[name][axis] = max(size, known[name].get(axis, 0))
    return known


def _need(model: ServedModel, axes: _Axes) -> int:
    rows: int = max(1, model.config.max_batch_size)
    batch: int = item_bytes(model, axes) * (rows + _rows_in_calls(model, axes, rows))
    need = math.ceil((OVERHEAD + SLACK * batch) / MIB) * MIB
    return need if need == MIB else need + GROWTH


def _rows_in_calls(model: ServedModel, axes: _Axes, rows: int) -> int:
    """Rows of a map whose items are in calls: their inputs and outputs are in its region a second time."""
    parameters = {key: value.string_value for key, value in model.config.parameters.items()}
    in_flight = parameters.get("max_in_flight", "")
    # A Python model of somebody's own may have parameters of these names, with other values.
    if not {"callee", "over"} <= parameters.keys() or not in_flight.isdecimal():
        return 0
    first = parameters["over"].split(",")[0]
    sizes = (
        axes.get((model.name, first, -len(tensor.dims)), FREE_AXIS) if tensor.dims[0] < 0 else tensor.dims[0]
        for tensor in model.config.input
        if tensor.name == first
    )
    return min(rows, math.ceil(int(in_flight) / next(sizes, 1)))


@dataclass(frozen=True)
class LargestSample:
    """The largest sizes that a model's warm-up shows.

    Args:
        axes: input name -> the sizes of its open axes, largest first.
        element: the largest BYTES value, in bytes.
    """

    axes: dict[str, tuple[int, ...]]
    element: int

    def open_values(self, name: str, axes: int) -> int:
        """The product of a tensor's open axes, of which there are `axes`.

        A tensor without a sample takes the largest sizes of one that has as many open axes, else of the longest one.
        """
        if name in self.axes:
            return math.prod(self.axes[name])
        longest = max((sizes[0] for sizes in self.axes.values()), default=FREE_AXIS)
        others = [math.prod(sizes[:axes]) for sizes in self.axes.values() if len(sizes) >= axes]
        return max(others, default=longest**axes)


def largest_sample(model: ServedModel) -> LargestSample:
    """The longest open axes that warm-up tensors fill, and the largest BYTES value."""
    open_axes = {
        tensor.name: [axis for axis, size in enumerate(tensor.dims) if size < 0] for tensor in model.config.input
    }
    largest: dict[str, tuple[int, ...]] = {}
    element = BYTES_ELEMENT
    for warmup in model.config.model_warmup:
        for name, sample in warmup.inputs.items():
            if sizes := sorted((sample.dims[axis] for axis in open_axes.get(name, ())), reverse=True):
                largest[name] = max(largest.get(name, (0,)), tuple(sizes), key=math.prod)
            file = model.folder / "warmup" / sample.input_data_file
            if dtype_name(sample) == "TYPE_STRING" and sample.input_data_file and file.is_file():
                element = max(element, file.stat().st_size)
    return LargestSample(largest, element)


def dtype_name(tensor: Any) -> str:
    """The name of a tensor's type, such as TYPE_FP32, from its enumeration's own table."""
    field = tensor.DESCRIPTOR.fields_by_name["data_type"]
    return str(field.enum_type.values_by_number[tensor.data_type].name)


def largest_message(models: Iterable[ServedModel]) -> int:
    """Bytes of the largest request that a model's configuration allows, its largest batch, in whole MiB.

    For an open axis or a BYTES tensor, the warm-up samples show the usual size, and four times that size
    is assumed.
    """
    most = max((_request(model) for model in models), default=0)
    bounded = min(max(most + MIB, MESSAGE_LEAST), MESSAGE_MOST)
    return math.ceil(bounded / MIB) * MIB


def largest_file(plan: ShmPlan, message_bytes: int) -> int:
    """Bytes that one stub's region may grow to: its plan twice, and room for the largest request."""
    planned = max((need.bytes_each for need in plan.models), default=0)
    return 2 * planned + math.ceil(SLACK * message_bytes)


def _request(model: ServedModel) -> int:
    items: int = max(1, model.config.max_batch_size)
    return items * item_bytes(model, outputs=False, factor=_OPEN, least=_ELEMENT)
