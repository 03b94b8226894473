"""The interface of every kind of ready-made file, and the checks that all kinds share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from tritonkit.datatypes import NUMPY_DTYPES
from tritonkit.errors import BuildError, SpecError
from tritonkit.repository.export.artifact import Independence, Signature, TensorInfo
from tritonkit.repository.export.batching import demand
from tritonkit.repository.export.independence import DEFAULT_LARGEST
from tritonkit.repository.export.onnx_file import check_against_spec
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.runner import Runner

__all__ = [
    "NO_RANGES",
    "Place",
    "ReadyFile",
    "declared",
    "first_axis_missing",
    "fixed_first_axis",
    "hold_outputs",
    "names_of",
    "told",
]


@dataclass(frozen=True)
class Place:
    """A network's file, and the spec that names it."""

    spec: Spec
    path: Path

    @property
    def where(self) -> str:
        """The field of the spec, for errors."""
        return f"{self.spec.file} network.file"

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    def refusal(self, found: str, wanted: str, todo: str) -> BuildError:
        """The error for a file that cannot be served as it is."""
        return BuildError(self.where, found=found, wanted=wanted, todo=todo)


NO_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType({})


class ReadyFile(Protocol):
    """A network in a file."""

    @property
    def tells(self) -> bool:
        """Whether the file itself says its inputs and outputs."""
        ...

    def signature(self, batched: bool) -> Signature:
        """Inputs and outputs, checked against the spec; with `batched`, axis 0 of every tensor is the batch."""
        ...

    def batch_axis_missing(self) -> str:
        """A sentence about a tensor without a free first axis; empty if all have one."""
        ...

    @property
    def ranges(self) -> Mapping[str, tuple[int, int]]:
        """The smallest and the largest size of each free axis whose name the file tells with its bounds."""
        ...

    @property
    def most_items(self) -> int:
        """The largest batch that the file takes; 0 where it tells none."""
        ...

    def open(self, threads: int) -> Runner:
        """The network, ready to run."""
        ...

    def write(self, folder: Path) -> tuple[str, ...]:
        """Copy the file as a version needs it; return notes for people."""
        ...


def told(place: Place, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], batched: bool) -> Signature:
    """The signature of tensors that a file describes, checked against the spec.

    `inputs` and `outputs` have all axes of the file.
    """
    for side, tensors in (("input", inputs), ("output", outputs)):
        if not tensors:
            raise BuildError(
                place.where, found=f"{place.name} has no {side}", wanted="a network with inputs and outputs"
            )
    if batched:
        inputs, outputs = ([replace(t, shape=t.shape[1:], axes=t.axis_names[1:]) for t in x] for x in (inputs, outputs))
    return check_against_spec(Signature(tuple(inputs), tuple(outputs), batched), place.spec, place.name)


def declared(place: Place, batched: bool, told_by_file: str) -> Signature:
    """The signature that the spec declares, for a file that does not tell it; SpecError if the spec does not either."""
    network = place.spec.model.network
    for side, tensors in (("inputs", network.inputs), ("outputs", network.outputs)):
        if not tensors:
            raise SpecError(
                f"{place.spec.file} network.{side}",
                found=f"it is missing, and {place.name} does not tell it{told_by_file}",
                wanted="names, dtypes and shapes without the batch axis",
                todo=f"write it, or let `tritonkit new NAME --file {place.name}` write it",
            )
    return replace(Signature.declared(place.spec), batched=batched)


def names_of(signature: Signature) -> tuple[list[str], list[str]]:
    """The names of inputs and outputs, in their order."""
    return [tensor.name for tensor in signature.inputs], [tensor.name for tensor in signature.outputs]


def first_axis_missing(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> str:
    """A sentence about the first tensor of a file without a free first axis; empty if all have one."""
    for side, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            if tensor.shape[:1] != (-1,):
                return f"{side} {tensor.name} has the shape {list(tensor.shape)}: no free batch axis in front"
    return ""


def fixed_first_axis(spec: Spec, ready: ReadyFile) -> Independence | None:
    """The verdict on a file whose tensors have a first axis of fixed size, so that a request has the file's own shapes.

    None if the first axes are free, or are not told: their items are tried.

    Raises:
        BuildError: the spec wants larger batches than the file takes.
    """
    size = spec.model.serving.max_batch_size
    missing, most = ready.batch_axis_missing(), ready.most_items
    if missing and demand(spec.model.serving) == "open":
        return Independence("fixed", missing)
    if missing:
        raise BuildError(
            f"{spec.file} serving.max_batch_size",
            found=missing,
            wanted="a first axis of free size in every input and output",
            todo="export the network again with a free batch axis, or set serving.max_batch_size: 0",
        )
    if most and (size or DEFAULT_LARGEST) > most:
        raise BuildError(
            f"{spec.file} serving.max_batch_size",
            found=f"{size or 'none'}, and the first axis of the file takes at most {most} items",
            wanted=f"at most {most}",
            todo=f"set serving: {{max_batch_size: {most}}}, or export the network again with a larger bound",
        )
    return None


def hold_outputs(spec: Spec, signature: Signature, outputs: Batch) -> None:
    """Compare the outputs of a run with the signature; BuildError for the first difference."""
    for tensor in signature.outputs:
        array = outputs[tensor.name]
        shape = array.shape[int(signature.batched) :]
        fits = len(shape) == len(tensor.shape) and all(
            size in (-1, have) for size, have in zip(tensor.shape, shape, strict=True)
        )
        if not fits or str(array.dtype) != NUMPY_DTYPES.get(tensor.dtype):
            raise BuildError(
                f"{spec.file} network.outputs.{tensor.name}",
                found=f"{tensor.dtype} {list(tensor.shape)}, and the file gives {array.dtype} {list(shape)}",
                wanted="the output as the file gives it, without the batch axis",
                todo="correct network.outputs, or set serving.max_batch_size: 0 if the first axis is not the batch",
            )
