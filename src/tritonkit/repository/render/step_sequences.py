"""Sequence batching of a step that keeps something between the requests of a sequence."""

from __future__ import annotations

from tritonkit.errors import RenderError
from tritonkit.repository.modelspec import PipelineStep, ResolvedStep, Serving, Spec
from tritonkit.repository.modelspec.sequences import MOST_SEQUENCES, Oldest, SequenceBatching

__all__ = ["with_sequences"]

_MANY_TIMES = ("dynamic_batching", "response_cache", "idempotent")
"""Settings that merge, keep or repeat requests whatever came before them."""


def with_sequences(step: ResolvedStep, entry: PipelineStep, section: str, spec: Spec) -> Serving:
    """The serving settings of a step, with the sequences of a step that keeps them.

    Raises:
        RenderError: the step keeps none, or a setting is given that cannot be used with sequences.
    """
    serving = entry.serving
    given, where = serving.sequence_batching, f"{spec.file} {section}"
    if not step.contract.keeps_sequences:
        if given is None:
            return serving
        raise RenderError(
            f"{where}.sequence_batching",
            found=f"it is given for {step.folder.name}, which keeps nothing between requests",
            wanted="sequences for the network, or for a step whose step.yaml has keeps_sequences: true",
            todo="move it to serving of the network",
        )
    if given and (given.state or given.control_input):
        raise RenderError(
            f"{where}.sequence_batching",
            found="state or control_input for a step",
            wanted="neither: a step keeps its own state, and reads the sequence from the request",
        )
    for place, settings in ((where, serving), (f"{spec.file} serving", spec.model.serving)):
        # The network may batch by itself; what is cached or repeated for callers would pass by the step.
        names = _MANY_TIMES if settings is serving else _MANY_TIMES[1:]
        if on := [name for name in names if getattr(settings, name)]:
            raise RenderError(
                f"{place}.{on[0]}",
                found=f"it is on, and {step.folder.name} keeps state between the requests of a sequence",
                wanted="requests that reach the step once, in their order",
                todo="leave it out",
            )
    return serving.model_copy(update={"sequence_batching": given or _as_network(spec.model.serving.sequence_batching)})


def _as_network(network: SequenceBatching | None) -> SequenceBatching:
    """Sequence batching with the network's number of sequences and idle time."""
    strategy = network.strategy if network else None
    most = strategy.max_candidate_sequences if isinstance(strategy, Oldest) else MOST_SEQUENCES
    batching = SequenceBatching(oldest=Oldest(max_candidate_sequences=most))
    # Microseconds that were read from a spec are a number, which a spec itself may not give.
    return batching.model_copy(update={"max_sequence_idle": network.max_sequence_idle}) if network else batching
