"""Models of other specs in a pipeline: whether an ensemble can have them, and the batches that all of them take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tritonkit.errors import RenderError
from tritonkit.repository.modelspec import PipelineMap, Spec
from tritonkit.repository.render.parts import Part
from tritonkit.repository.render.values import ModelPlan

_REQUESTS = 8
"""Largest batch of a pipeline whose networks are all for items."""

__all__ = ["batch_of_members", "ensemble_batch", "hold_to_members"]


def hold_to_members(spec: Spec, parts: Sequence[Part]) -> None:
    """Check that an ensemble can have the models of other specs.

    Raises:
        RenderError: a model may give several responses, or keeps sequences where requests are repeated.
    """
    serving = spec.model.serving
    for key, member in spec.members.items():
        where = f"{spec.file} pipeline.{key}"
        if any(one.model.serving.decoupled or one.model.network.llm for one in member.tree):
            raise RenderError(
                where,
                found=f"{member.name}, which may give any number of responses to a request (decoupled)",
                wanted="models that give one: a pipeline joins one of each",
                todo="call it from a model.py (network.calls), or let callers call it themselves",
            )
        if not member.keeps_sequences:
            continue
        if on := [name for name in ("response_cache", "idempotent") if getattr(serving, name)]:
            raise RenderError(
                f"{spec.file} serving.{on[0]}",
                found=f"it is on, and {member.name} keeps state between the requests of a sequence",
                wanted="requests that reach it once, in their order",
                todo="leave it out",
            )
        if [part.model for part in parts].count(member.name) > 1:
            raise RenderError(
                where,
                found=f"{member.name} several times, which keeps state between the requests of a sequence",
                wanted="it once: Triton gives all of them the same sequence",
            )


def batch_of_members(spec: Spec, members: Mapping[str, ModelPlan]) -> int:
    """The largest batch that all models of other specs take; 0 if one has no batch axis. Models for items do not count:
    a request has many of them."""
    items = {spec.members[part.key].name for part in spec.model.pipeline if isinstance(part, PipelineMap)}
    return min((plan.max_batch_size for name, plan in members.items() if name not in items), default=_REQUESTS)


def ensemble_batch(spec: Spec, sizes: Mapping[str, int], *, whole: bool) -> int:
    """The largest batch of a pipeline's ensemble, which every part can take.

    Args:
        sizes: the largest batch of each model in the pipeline.
        whole: whether requests are documents in windows, which have no batch axis.

    Raises:
        RenderError: some parts have a batch axis and others have none, or the spec gives more than a part takes.
    """
    listed = ", ".join(f"{name} has max_batch_size {size}" for name, size in sizes.items())
    if 0 in sizes.values() and any(sizes.values()) and not whole:
        raise RenderError(
            f"{spec.file} pipeline",
            found=listed,
            wanted="a batch axis in all parts, or in none",
            todo="leave max_batch_size of the steps out"
            + (", and give the networks a batch axis: their first axis, free" if spec.members else ""),
        )
    given, most = spec.model.serving.max_batch_size, min(sizes.values())
    if spec.model.has_network or given is None:
        return most
    if given > most or (given == 0) != (most == 0):
        raise RenderError(
            f"{spec.file} serving.max_batch_size",
            found=f"{given}, and {listed}",
            wanted=f"1 to {most}, the smallest of its parts" if most else "0: its parts have no batch axis",
            todo=f"leave it out, which means {most}",
        )
    return given
