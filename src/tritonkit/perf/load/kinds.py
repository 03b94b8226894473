"""One request to a served model of any kind: a call, a stream of replies, or a call of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tritonkit.errors import InferenceError, Unsupported

if TYPE_CHECKING:
    from tritonkit.client import Client
    from tritonkit.perf.load.workload import Outputs

__all__ = ["CALL", "SEQUENCE", "SEQUENCE_CALLS", "STREAM", "Kind", "answers_to", "kind_of"]

Kind: TypeAlias = Literal["call", "stream", "sequence"]

CALL: Kind = "call"
"""A model that gives one answer to each request."""
STREAM: Kind = "stream"
"""A decoupled model: any number of replies to a request."""
SEQUENCE: Kind = "sequence"
"""A model with sequence_batching: it keeps state between the calls of one sequence."""

SEQUENCE_CALLS = 8
"""The default number of calls of a sequence under load."""

_DEEPEST = 8  # ensembles within ensembles


def kind_of(client: Client, name: str) -> Kind:
    """The kind of a model by its configuration; of an ensemble, by the configurations of its steps.

    Raises:
        ClientError: the server does not answer, or does not serve it.
    """
    try:
        return _kind_of(client, name, _DEEPEST)
    except Unsupported:  # a server of the Open Inference Protocol that is not a Triton
        return CALL


def _kind_of(client: Client, name: str, depth: int) -> Kind:
    config = client.config(name)
    if config.model_transaction_policy.decoupled:
        return STREAM
    if config.HasField("sequence_batching"):
        return SEQUENCE
    steps = [step.model_name for step in config.ensemble_scheduling.step] if depth else []
    kinds = {_kind_of(client, step, depth - 1) for step in dict.fromkeys(steps)}
    return STREAM if STREAM in kinds else SEQUENCE if SEQUENCE in kinds else CALL


def answers_to(client: Client, name: str, inputs: Mapping[str, Any], kind: Kind) -> list[Outputs]:
    """The answers to one request; for a sequence, one that has only this call.

    Raises:
        InferenceError: the model failed, or gave no reply.
        ClientError: the server does not answer.
    """
    model = client.model(name)
    if kind == STREAM:
        with model.stream(inputs=inputs) as replies:
            answers = [reply.outputs for reply in replies]
        if not answers:
            raise InferenceError(f"model {name}", found="a stream that ended without a reply")
        return answers
    if kind == SEQUENCE:
        with model.sequence() as sequence:
            return [sequence.predict(inputs=inputs, last=True).outputs]
    return [model.predict(inputs=inputs).outputs]
