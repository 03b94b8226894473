"""Batches of Python that tritonkit did not write: the models to try, and the result's effect on their batches."""

from __future__ import annotations

from collections.abc import Container, Mapping

from tritonkit.client.wire.signature import INDEPENDENT_ITEMS
from tritonkit.errors import BuildError
from tritonkit.repository.export.artifact import Independence
from tritonkit.repository.export.batching import demand
from tritonkit.repository.render.parts import CALLS, STEP, Part
from tritonkit.repository.render.values import ModelPlan

__all__ = ["Verdicts", "batch_size", "is_own_part", "own_python_note", "wants_proof"]

Verdicts = Mapping[str, Independence]
"""Verdicts on items, by Triton model."""

_FOUND = {
    "coupled": "an item's answer depends on the items processed with it",
    "random": "the same item gets another answer each time",
}
_ADVICE = (
    "compute each item's answer from that item alone, nothing over axis 0 or over several requests; or set"
    " max_batch_size: 1; or say independent_items: true if that is intended"
)


def is_own_python(backend: str | None, parameters: Container[str]) -> bool:
    """Whether a model with this backend and these parameters is Python that tritonkit did not write."""
    return backend == "python" and STEP not in parameters


def is_own_part(part: Part) -> bool:
    """The same for a part, which may also be a model.py that the build wrote."""
    return is_own_python(part.backend, part.parameters) and not part.torch_kinds and not part.over


def wants_proof(plan: ModelPlan) -> bool:
    """Whether a model is a user's own Python that receives batches and has no verdict yet.

    Models that need more than one request to be tried are left out: those that call others, keep sequences or give
    several responses.
    """
    return (
        is_own_python(plan.backend, plan.parameters)
        and plan.max_batch_size > 1
        and plan.dynamic_batching is not None
        and not plan.decoupled
        and INDEPENDENT_ITEMS not in plan.parameters
        and CALLS not in plan.parameters
    )


def batch_size(part: Part, size: int, verdict: Independence | None, where: str) -> int:
    """The largest batch of a part: the given size, or 1 where its items turned out to depend on each other.

    Raises:
        BuildError: the spec requires batches of this part.
    """
    if verdict is None or verdict.state not in _FOUND:
        return size
    if demand(part.serving) == "open":
        return 1
    field = "max_batch_size" if part.serving.max_batch_size else "dynamic_batching"
    raise BuildError(
        f"{where}.{field}",
        found=f"batching is on, and {_FOUND[verdict.state]} ({part.model}): {verdict.seen}",
        wanted="items that get the same answer in a batch as alone",
        todo=_ADVICE,
    )


def own_python_note(part: Part, plan: ModelPlan, verdict: Independence | None) -> str:
    """A note about the part's batches; empty if there is nothing to report."""
    if verdict is not None and verdict.state in _FOUND:
        return f"max_batch_size is 1: {_FOUND[verdict.state]}: {verdict.seen}. To batch: {_ADVICE}"
    shared = plan.dynamic_batching is not None or plan.sequence_batching is not None
    if not is_own_part(part) or plan.max_batch_size < 2 or not shared or INDEPENDENT_ITEMS in plan.parameters:
        return ""
    return (
        f"not proven: {_untried(plan, verdict)}, so nothing shows that an item gets the same answer in a batch"
        f" as alone. `tritonkit check-batching {part.model}` tries it on a server;"
        f" {part.section}.independent_items: true declares it, max_batch_size: 1 turns batches off"
    )


def _untried(plan: ModelPlan, verdict: Independence | None) -> str:
    if verdict is not None:
        return verdict.seen
    if wants_proof(plan):
        return (
            "a build tries its Python only where it knows several items (quality.samples, or `more` of an example)"
            " and has a server"
        )
    return "a build does not try Python that calls other models, keeps sequences or gives several responses"
