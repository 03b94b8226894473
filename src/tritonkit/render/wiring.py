"""Which tensor of a pipeline goes where: names joined, dtypes and shapes held against each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tritonkit.errors import RenderError
from tritonkit.export.artifact import TensorInfo
from tritonkit.render.parts import Part, Port
from tritonkit.render.values import EnsembleStep, TensorPlan

__all__ = ["Wiring", "wire"]


@dataclass(frozen=True)
class Wiring:
    """The ensemble's steps, inputs and outputs, and the inputs of each part.

    `part_inputs[model][name]` has the part's shape with each free axis replaced by the size or the
    axis name that the other end of the wire gives; `client_inputs[model][name]` is the ensemble's
    input that it comes from, for those that a client sends.
    """

    steps: tuple[EnsembleStep, ...]
    inputs: tuple[TensorPlan, ...]
    outputs: tuple[TensorPlan, ...]
    part_inputs: dict[str, dict[str, TensorInfo]]
    client_inputs: dict[str, dict[str, str]]


@dataclass(eq=False)
class _Wire:
    """One tensor between parts: its producer (None: the client), its consumers, dtype and shape."""

    tensor: str
    producer: str | None
    info: TensorInfo
    consumers: list[str] = field(default_factory=list)
    name: str = ""


def wire(parts: tuple[Part, ...], where: str) -> Wiring:
    """Join the parts by tensor name, each input taking the latest tensor of its name.

    Raises RenderError where two ends differ, or a part's outputs lead nowhere.
    """
    wires, ends = _join(parts, where)
    _check_ends(parts, wires, where)
    _name(wires, where)
    given = [w for w in wires if w.producer is None]
    left = [w for w in wires if w.producer is not None and not w.consumers]
    return Wiring(
        steps=tuple(
            EnsembleStep(model, _names(ends_of.inputs), _names(ends_of.outputs))
            for model, ends_of in ends.items()
        ),
        inputs=tuple(TensorPlan(w.name, w.info.dtype, w.info.shape) for w in given),
        outputs=tuple(TensorPlan(w.name, w.info.dtype, w.info.shape) for w in left),
        part_inputs={
            model: {own: replace(w.info, name=own) for own, w in ends_of.inputs.items()}
            for model, ends_of in ends.items()
        },
        client_inputs={
            model: {own: w.name for own, w in ends_of.inputs.items() if w.producer is None}
            for model, ends_of in ends.items()
        },
    )


@dataclass(frozen=True)
class _Ends:
    """The wires at a part's inputs and outputs, by the part's own tensor names."""

    inputs: dict[str, _Wire] = field(default_factory=dict)
    outputs: dict[str, _Wire] = field(default_factory=dict)


def _names(wires: dict[str, _Wire]) -> dict[str, str]:
    return {own: w.name for own, w in wires.items()}


def _join(parts: tuple[Part, ...], where: str) -> tuple[list[_Wire], dict[str, _Ends]]:
    wires: list[_Wire] = []
    ends = {part.model: _Ends() for part in parts}
    latest: dict[str, _Wire] = {}
    for part in parts:
        for port in part.inputs:
            if port.tensor not in latest:
                latest[port.tensor] = _Wire(port.tensor, None, _outside(port.info))
                wires.append(latest[port.tensor])
            found = latest[port.tensor]
            found.info = _meet(found, part, port, where)
            found.consumers.append(part.model)
            ends[part.model].inputs[port.info.name] = found
        for port in part.outputs:
            made = _Wire(port.tensor, part.model, _outside(port.info))
            latest[port.tensor] = made
            wires.append(made)
            ends[part.model].outputs[port.info.name] = made
    return wires, ends


def _meet(found: _Wire, part: Part, port: Port, where: str) -> TensorInfo:
    """What both ends of a wire say together; -1 is compatible with any size."""
    one, other = found.info, _outside(port.info)
    fits = len(one.shape) == len(other.shape) and all(
        a == b or -1 in (a, b) for a, b in zip(one.shape, other.shape, strict=True)
    )
    if one.dtype != other.dtype or not fits:
        producer = (
            f"{found.producer} gives"
            if found.producer
            else f"{found.consumers[0]} takes from the client"
        )
        raise RenderError(
            f"{where} {found.tensor}",
            found=f"{producer} {_describe(one)}; {part.model} takes {_describe(other)}",
            wanted="one dtype and shape at both ends",
            todo="change a parameter of the step, or join other tensors with inputs: and outputs:",
        )
    axes = tuple(a or b for a, b in zip(one.axis_names, other.axis_names, strict=True))
    return replace(one, shape=tuple(map(max, one.shape, other.shape)), axes=axes)


def _check_ends(parts: tuple[Part, ...], wires: list[_Wire], where: str) -> None:
    """Every part but the last feeds a later one: a typing error in a name would else cut the
    pipeline in two, and Triton would serve both halves."""
    for part in parts[:-1]:
        given = [w for w in wires if w.producer == part.model]
        if any(w.consumers for w in given):
            continue
        later = parts[parts.index(part) + 1]
        raise RenderError(
            f"{where} {part.model}",
            found=f"it gives {_list(w.info for w in given)}, and no later part takes that",
            wanted=f"what {later.model} takes: {_list(port.info for port in later.inputs)}",
            todo="join the two names with outputs: or inputs: of the step",
        )


def _name(wires: list[_Wire], where: str) -> None:
    """The ensemble's own tensor names: clients' inputs and outputs keep theirs, and a tensor made
    again on the way, such as text cleaned by a step, gets a number."""
    taken: dict[str, _Wire] = {}
    inner = [w for w in wires if w.producer is not None and w.consumers]
    for w in (w for w in wires if w not in inner):
        if w.tensor in taken:
            raise RenderError(
                f"{where} {w.tensor}",
                found=f"{w.producer} gives the client a tensor of the same name as an earlier input or output",
                wanted="one name for each input and output of the pipeline",
                todo=f"rename it with outputs: {{...: {w.tensor}_2}} of the step",
            )
        taken[w.tensor] = w
        w.name = w.tensor
    for w in inner:
        number, w.name = 1, w.tensor
        while w.name in taken:
            number += 1
            w.name = f"{w.tensor}_{number}"
        taken[w.name] = w


def _outside(info: TensorInfo) -> TensorInfo:
    """The tensor as Triton carries it: one value per item has the shape [1]."""
    return info if info.shape else replace(info, shape=(1,), axes=("",))


def _describe(info: TensorInfo) -> str:
    return f"{info.name} {info.dtype} [{','.join(map(str, info.shape))}]"


def _list(infos: Iterable[TensorInfo]) -> str:
    return " and ".join(map(_describe, infos))
