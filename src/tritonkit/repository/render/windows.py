"""Pipelines that read a document in windows: one request is one document, and its windows are the network's batch.

The ensemble and the steps that take or give windows have no batch axis. The parts between them batch, so windows of
several callers share the network's batches; in the ensemble their tensors have an axis of windows in front.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tritonkit.errors import RenderError
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.render.parts import Part, Port
from tritonkit.repository.render.values import ModelPlan
from tritonkit.repository.render.wiring import Wiring, connect

__all__ = ["connect_windows", "document_models", "hold_to_windows"]


def document_models(spec: Spec, parts: Sequence[Part]) -> frozenset[str]:
    """The models whose request is one document: all but those between the step that gives windows and the last that
    takes them. None for a pipeline without windows.

    Raises:
        RenderError: the windows have no source or no end, or no network is between them.
    """
    places = [place for place, part in enumerate(parts) if part.windows]
    if not places:
        return frozenset()
    first, last = places[0], places[-1]
    inner = parts[first + 1 : last]
    if not parts[first].most_windows or all(part.is_step for part in inner):
        source = parts[first].model if parts[first].most_windows else "no step"
        raise RenderError(
            f"{spec.file} pipeline",
            found=f"{source} gives windows, and {parts[last].model if last > first else 'no step'} takes them",
            wanted="a step that gives windows before the network, and one behind it that takes those of a document"
            " together",
            todo="say windows: true for tokenize, and for best_span or aggregate_tokens; or leave it out of both",
        )
    return frozenset(part.model for part in parts) - {part.model for part in inner if not part.windows}


def connect_windows(spec: Spec, parts: tuple[Part, ...], whole: Collection[str]) -> Wiring:
    """Join the parts, of which those that are not `whole` have an axis of windows in front."""
    where, ensemble = f"{spec.file} pipeline", spec.model.ensemble
    if not whole:
        return connect(parts, where, ensemble)
    wiring = connect(tuple(part if part.model in whole else _with_axis(part) for part in parts), where, ensemble)
    models = {part.key: part.model for part in parts}
    own = {
        key: inputs
        if models[key] in whole
        else {name: replace(info, shape=info.shape[1:], axes=info.axes[1:]) for name, info in inputs.items()}
        for key, inputs in wiring.part_inputs.items()
    }
    return replace(wiring, part_inputs=own)


def _with_axis(part: Part) -> Part:
    def ports(given: Sequence[Port]) -> tuple[Port, ...]:
        infos = ((port, port.info.shape or (1,), port.info.axis_names or ("",)) for port in given)
        return tuple(
            replace(port, info=replace(port.info, shape=(-1, *shape), axes=("", *axes))) for port, shape, axes in infos
        )

    return replace(part, inputs=ports(part.inputs), outputs=ports(part.outputs))


def hold_to_windows(spec: Spec, parts: Sequence[Part], whole: Collection[str], models: Sequence[ModelPlan]) -> None:
    """Check the batches of a pipeline with windows.

    Raises:
        RenderError: a part between the steps takes fewer windows in a batch than a document may have, or a step has a
            batch axis where a request is one document.
    """
    most = max(part.most_windows for part in parts)
    for part, model in zip(parts, models, strict=True):
        if part.model in whole and part.serving.max_batch_size:
            raise RenderError(
                f"{spec.file} {part.section}.max_batch_size",
                found=f"{part.serving.max_batch_size}, and with windows a request of {part.model} is one document",
                wanted="0",
                todo="leave it out",
            )
        if part.model not in whole and model.max_batch_size < most:
            raise RenderError(
                f"{spec.file} {part.section}.max_batch_size",
                found=f"{model.max_batch_size} for {part.model}, and a document has up to {most} windows",
                wanted=f"a batch of {most} windows",
                todo=f"set max_windows of the step that gives them to at most {model.max_batch_size}"
                if model.max_batch_size
                else "use a network with a batch axis, or leave windows out",
            )
