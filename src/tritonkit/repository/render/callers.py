"""Inputs of a pipeline's later parts that callers must send, intended or forgotten."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import TensorInfo
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.render.parts import Part
from tritonkit.repository.render.wiring import Wiring

__all__ = ["hold_to_callers", "hold_to_order"]


def hold_to_callers(spec: Spec, parts: Sequence[Part], wiring: Wiring) -> tuple[str, ...]:
    """A note for each input that callers send to a later part, unless the spec lists what they send.

    Raises:
        RenderError: no step gives an input of the network and nobody declared it. Callers would have to send it without
            being told, often in a length that only a step knows.
    """
    if spec.members or spec.model.ensemble.inputs is not None:
        return ()  # `hold_to_order` has looked
    notes: list[str] = []
    declared = set(wiring.client_inputs[parts[0].key].values())
    for part in parts[1:]:
        sent = wiring.client_inputs[part.key]
        new = {own: name for own, name in sent.items() if name not in declared}
        declared |= set(new.values())
        if not part.is_step:
            _hold_network(spec, part, sent, new)
        infos = {port.info.name: port.info for port in part.inputs}
        notes += [_note(part, name, infos[own]) for own, name in new.items()]
    return tuple(notes)


def hold_to_order(spec: Spec, parts: Sequence[Part]) -> None:
    """Check where several networks are, or the spec lists what callers send, that each tensor is there when a part
    takes it.

    Raises:
        RenderError: a part takes a tensor that no part before it gives, and that callers do not send; or no part takes
            a tensor from callers that the spec lists.
    """
    listed = spec.model.ensemble.inputs
    if listed is None and not spec.members:
        return
    sent = {port.tensor for port in parts[0].inputs} if listed is None else set(listed)
    there, given, taken = set(sent), set[str](), set[str]()
    for place, part in enumerate(parts):
        for port in part.inputs:
            if port.tensor not in there and not port.info.optional:
                raise _not_there(spec, part, port.tensor, parts[place:], there)
        taken |= {port.tensor for port in part.inputs} - given
        given |= {port.tensor for port in part.outputs}
        there |= given
    if unused := [name for name in listed or () if name not in taken]:
        raise RenderError(
            f"{spec.file} ensemble.inputs",
            found=f"{unused[0]}, which no part of the pipeline takes from callers",
            wanted=nearest(unused[0], sorted(taken)),
        )


def _not_there(spec: Spec, part: Part, tensor: str, later: Sequence[Part], there: Collection[str]) -> RenderError:
    giver = next((one.model for one in later if tensor in [port.tensor for port in one.outputs]), "")
    return RenderError(
        f"{spec.file} {part.section.removesuffix('.serving')}",
        found=f"{part.model} takes {tensor}, "
        + (f"which {giver} gives only after it" if giver else "which no part before it gives"),
        wanted="parts in the order of their tensors, without a cycle"
        if giver
        else f"a tensor that is there: {nearest(tensor, sorted(there))}",
        todo=f"join the names with inputs: or outputs: of an entry; if callers are to send {tensor}, list all that"
        " they send under ensemble: {inputs: [...]}",
    )


def _note(part: Part, name: str, info: TensorInfo) -> str:
    verb = "may send" if info.optional else "have to send"
    taken = f"{part.model} takes and no part before it gives"
    return f"callers {verb} {name} {info.dtype} {list(info.shape)}, which {taken}"


def _hold_network(spec: Spec, part: Part, sent: dict[str, str], new: dict[str, str]) -> None:
    network = spec.model.network
    received = [port.info for port in part.inputs if port.info.name not in sent]
    for port in part.inputs:
        if port.info.name not in new or port.info.optional:
            continue
        like = next((info for info in received if _shares_axis(info, port.info)), None)
        if like is None and port.info.name in network.inputs:
            continue
        name = port.info.name
        raise RenderError(
            f"{spec.file} pipeline",
            found=f"no step gives the network's input {name}, so that callers would have to send it"
            + (f", as long as {like.name}, which they do not know" if like else ""),
            wanted="every input of the network from a step, filled, or declared",
            todo=_ways(spec, name, declared=like is None),
        )


def _ways(spec: Spec, name: str, *, declared: bool) -> str:
    ways = [f"give it from a step (outputs: {{...: {name}}})"]
    if spec.model.network.onnx is not None:
        ways.insert(0, f"fill it: network: {{fill: {{{name}: 0}}}}")
    else:
        ways.insert(0, f"leave {name} out of network.inputs, if the network has a value of its own for it")
    if declared:
        ways.append("list the network's inputs under network.inputs, if callers are to send it")
    return "; or ".join(ways)


def _shares_axis(one: TensorInfo, other: TensorInfo) -> bool:
    """Whether two inputs share a free axis: they have one of the same name, or, without names, the same shape."""
    names = {name for name in one.axis_names if name} & {name for name in other.axis_names if name}
    unnamed = not any((*one.axis_names, *other.axis_names))
    return bool(names) or (unnamed and -1 in one.shape and one.shape == other.shape)
