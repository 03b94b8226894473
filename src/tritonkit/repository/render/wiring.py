"""The tensors between a pipeline's parts: names are joined, dtypes and shapes are checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import TensorInfo
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.modelspec.fields import Ensemble
from tritonkit.repository.render.parts import Part, Port
from tritonkit.repository.render.values import EnsembleStep, TensorPlan

__all__ = ["Wiring", "connect"]


@dataclass(frozen=True)
class Wiring:
    """The ensemble's steps, inputs and outputs, and the inputs of each part by its key.

    `part_inputs[key][name]` has the part's shape, with each free axis replaced by the size or axis name from the
    other end of the wire. `client_inputs[key][name]` names the ensemble's input, for those that a client sends.
    """

    steps: tuple[EnsembleStep, ...]
    inputs: tuple[TensorPlan, ...]
    outputs: tuple[TensorPlan, ...]
    part_inputs: dict[str, dict[str, TensorInfo]]
    client_inputs: dict[str, dict[str, str]]


@dataclass(eq=False)
class _Edge:
    """One tensor between parts: its producer (None: the client), its consumers, dtype and shape."""

    tensor: str
    producer: str | None
    part: str
    """The producer's key, which is no other part's."""
    info: TensorInfo
    consumers: list[str] = field(default_factory=list)
    needed: bool = False
    """Whether a consumer requires the tensor."""
    listed: bool | None = None
    """Whether the spec lists it among the tensors that callers get; None without such a list."""
    name: str = ""

    @property
    def is_output(self) -> bool:
        """Whether callers get it."""
        if self.producer is None:
            return False
        return not self.consumers if self.listed is None else self.listed

    @property
    def plan(self) -> TensorPlan:
        optional = self.producer is None and not self.needed
        return TensorPlan(self.name, self.info.dtype, self.info.shape, optional=optional)


def connect(parts: tuple[Part, ...], where: str, ensemble: Ensemble = Ensemble()) -> Wiring:  # noqa: B008  frozen
    """Join the parts by tensor name, each input taking the latest tensor of its name.

    Args:
        ensemble: the spec's section with the tensors that callers send and get, where they are listed.

    Raises:
        RenderError: two ends differ, a part's outputs lead nowhere, or a listed tensor does not exist.
    """
    file = where.removesuffix("pipeline")
    edges, inputs, outputs = _edges(parts, file)
    _list_outputs(edges, ensemble, file)
    _check_connected(parts, edges, file)
    # A language model stands alone and has text as input and as output. Triton tells a model's inputs from its
    # outputs; only an ensemble needs one name for each tensor.
    if parts[0].backend == "llm":
        for edge in edges:
            edge.name = edge.tensor
    else:
        _name(edges, {part.key: f"{file}{part.place}" for part in parts})
    optional = {(part.key, p.info.name) for part in parts for p in part.inputs if p.info.optional}
    return Wiring(
        steps=tuple(
            EnsembleStep(
                part.model,
                {own: edge.name for own, edge in inputs[part.key].items()},
                {own: edge.name for own, edge in outputs[part.key].items() if edge.consumers or edge.is_output},
            )
            for part in parts
        ),
        inputs=tuple(e.plan for e in edges if e.producer is None),
        outputs=tuple(e.plan for e in edges if e.is_output),
        part_inputs={
            key: {own: replace(edge.info, name=own, optional=(key, own) in optional) for own, edge in taken.items()}
            for key, taken in inputs.items()
        },
        client_inputs={
            key: {own: edge.name for own, edge in taken.items() if edge.producer is None}
            for key, taken in inputs.items()
        },
    )


def _list_outputs(edges: list[_Edge], ensemble: Ensemble, file: str) -> None:
    """Mark the tensors that callers get, if the spec lists them; of several of one name the last."""
    if ensemble.outputs is None:
        return
    latest = {edge.tensor: edge for edge in edges if edge.producer is not None}
    for edge in edges:
        edge.listed = edge.tensor in ensemble.outputs and latest.get(edge.tensor) is edge
    for name in ensemble.outputs:
        if name not in latest:
            raise RenderError(
                f"{file}ensemble.outputs",
                found=f"{name}, which no part of the pipeline gives",
                wanted=nearest(name, list(latest)),
            )


_Ends = dict[str, dict[str, _Edge]]
"""Edges by part and by the part's own name for the tensor."""


def _edges(parts: tuple[Part, ...], file: str) -> tuple[list[_Edge], _Ends, _Ends]:
    """All tensors between the parts, and those that each part takes and gives."""
    edges: list[_Edge] = []
    inputs: _Ends = {part.key: {} for part in parts}
    outputs: _Ends = {part.key: {} for part in parts}
    latest: dict[str, _Edge] = {}
    for part in parts:
        for port in part.inputs:
            if port.tensor not in latest:
                latest[port.tensor] = _Edge(port.tensor, None, "", _outside(port.info))
                edges.append(latest[port.tensor])
            edge = inputs[part.key][port.info.name] = latest[port.tensor]
            edge.info = _meet(edge, part, port, file)
            edge.consumers.append(part.model)
            edge.needed |= not port.info.optional
        for port in part.outputs:
            _check_only(port, part, file)
            edge = latest[port.tensor] = _Edge(port.tensor, part.model, part.key, _outside(port.info))
            outputs[part.key][port.info.name] = edge
            edges.append(edge)
    return edges, inputs, outputs


def _check_only(port: Port, part: Part, file: str) -> None:
    """Check that a part gives one tensor of a name: of several, later parts would get the last."""
    same = [one.info for one in part.outputs if one.tensor == port.tensor]
    if len(same) > 1:
        raise RenderError(
            f"{file}{part.place}",
            found=f"{part.model} gives {_list(same)} under one name, {port.tensor}",
            wanted="one name for each tensor of a part",
            todo="rename all but one with outputs: of the entry",
        )


def _meet(edge: _Edge, part: Part, port: Port, file: str) -> TensorInfo:
    """The type and shape that both ends of a wire agree on; -1 is compatible with any size."""
    one, other = edge.info, _outside(port.info)
    fits = len(one.shape) == len(other.shape) and all(
        a == b or -1 in (a, b) for a, b in zip(one.shape, other.shape, strict=True)
    )
    if one.dtype != other.dtype or not fits:
        producer = edge.producer
        source = f"{producer} gives" if producer else f"{edge.consumers[0]} takes from the client"
        raise RenderError(
            f"{file}{part.place}",
            found=f"tensor {edge.tensor}: {source} {_describe(one)}; {part.model} takes {_describe(other)}",
            wanted="one dtype and shape at both ends",
            todo=_advice(one, other),
        )
    axes = tuple(a or b for a, b in zip(one.axis_names, other.axis_names, strict=True))
    return replace(one, shape=tuple(map(max, one.shape, other.shape)), axes=axes)


def _advice(one: TensorInfo, other: TensorInfo) -> str:
    if other.shape[:1] == (1,) and len(other.shape) == len(one.shape) + 1:
        return (
            f"if the 1 in front of {other.name} is the batch of an exported file, list the file's inputs under"
            " network.inputs without it, and leave serving.max_batch_size out"
        )
    return "change a parameter of the step at one end, or join other tensors with inputs: and outputs:"


def _check_connected(parts: tuple[Part, ...], edges: list[_Edge], file: str) -> None:
    """Check that every part feeds a later one or the callers. A misspelled name would otherwise cut the pipeline in
    two, and Triton would serve both halves."""
    for number, part in enumerate(parts):
        outgoing = [e for e in edges if e.part == part.key]
        unlisted = all(e.listed is None for e in outgoing)
        if any(e.consumers or e.listed for e in outgoing) or (number == len(parts) - 1 and unlisted):
            continue
        later = parts[number + 1 :][:1]
        raise RenderError(
            f"{file}{part.place}",
            found=f"{part.model} gives {_list(e.info for e in outgoing)}, and no later part takes that",
            wanted=f"an input of {later[0].model}: {_list(port.info for port in later[0].inputs)}"
            if later
            else "one of its outputs under ensemble.outputs",
            todo="join the two names with outputs: or inputs: of the step, or list under ensemble.outputs all tensors"
            " that callers get",
        )


def _name(edges: list[_Edge], places: dict[str, str]) -> None:
    """Give each tensor its name in the ensemble. Clients' inputs and outputs keep theirs; an inner tensor of a name
    that is taken gets a number."""
    taken: dict[str, _Edge] = {}
    inner = [e for e in edges if e.producer is not None and not e.is_output]
    for e in (e for e in edges if e not in inner):
        if e.tensor in taken:
            raise RenderError(
                places[e.part],
                found=f"{e.producer} gives the client {e.tensor}, which is the name of an earlier input or output",
                wanted="one name for each input and output of the pipeline",
                todo=f"rename it with outputs: {{...: {e.tensor}_2}} of the step",
            )
        taken[e.tensor] = e
        e.name = e.tensor
    for e in inner:
        number, e.name = 1, e.tensor
        while e.name in taken:
            number += 1
            e.name = f"{e.tensor}_{number}"
        taken[e.name] = e


def _outside(info: TensorInfo) -> TensorInfo:
    """The tensor as Triton carries it, where one value per item has the shape [1]."""
    return info if info.shape else replace(info, shape=(1,), axes=("",))


def _describe(info: TensorInfo) -> str:
    return f"{info.name} {info.dtype} [{','.join(map(str, info.shape))}]"


def _list(infos: Iterable[TensorInfo]) -> str:
    return " and ".join(map(_describe, infos))
