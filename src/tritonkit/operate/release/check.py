"""Checks of a candidate before it gets callers' requests: warm, right on requests with known answers, and good enough
for the quality gate through the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import GateError, InferenceError
from tritonkit.operate.release.candidate import Candidate
from tritonkit.perf.load.kinds import CALL, Kind, answers_to, kind_of
from tritonkit.perf.load.workload import Request
from tritonkit.perf.load.workloads import prepare
from tritonkit.repository.export import BuildCache
from tritonkit.repository.export.op_library import operators_of
from tritonkit.repository.export.samples import Batch
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize.gate import judge, refuse
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.optimize.quality import measure

if TYPE_CHECKING:
    from tritonkit.client import Client
    from tritonkit.repository.export.artifact import MeasuredQuality

__all__ = ["Checked", "check_candidate"]

_MOST_REQUESTS = 512
_AT_ONCE = 4
_CALL_S = 60.0


@dataclass(frozen=True)
class Checked:
    """Result of a candidate's check.

    Args:
        requests: the number of requests with known answers, all of which were answered right.
        quality: the quality of the network's answers to the gate's samples; None for a model without a gate.
    """

    requests: int
    quality: MeasuredQuality | None


def check_candidate(
    root: Path, candidate: Candidate, address: str, say: Callable[[str], None] = lambda text: None
) -> Checked:
    """Send requests with known answers, then the gate's samples.

    Args:
        address: the address of the candidate's server, `host:port`.
        say: called with a message about each stage.

    Raises:
        InferenceError: an answer is wrong.
        GateError: the answers through the server do not reach the quality that the spec asks for.
        ClientError: the candidate does not answer.
    """
    from tritonkit.client import Client

    with Client(address, timeout_s=_CALL_S) as client:
        say("requests with known answers")
        count = _ask(root, candidate.model, client)
        return Checked(count, _measure(root, candidate, client, say))


def _ask(root: Path, model: str, client: Client) -> int:
    """Number of requests that were answered right."""
    workload = prepare(model, root, client)
    requests = workload.requests[:_MOST_REQUESTS]
    # More than once each where there are few: code that runs on first use has run by then.
    repeats = max(1, 32 // len(requests))
    kind = kind_of(client, model)
    if kind != CALL:
        return _ask_in_turn(client, model, requests, kind)
    replies = client.model(model).predict_many(
        (request.inputs for _ in range(repeats) for request in requests), concurrency=_AT_ONCE
    )
    sent = [request for _ in range(repeats) for request in requests]
    for request, reply in zip(sent, replies, strict=True):
        _hold(model, request.check(reply.outputs))
    return len(sent)


def _ask_in_turn(client: Client, model: str, requests: Sequence[Request], kind: Kind) -> int:
    """The same for a model that answers in streams or keeps state."""
    for request in requests:
        for outputs in answers_to(client, model, request.inputs, kind):
            _hold(model, request.check(outputs))
    return len(requests)


def _hold(model: str, wrong: str) -> None:
    if wrong:
        raise InferenceError(
            f"the candidate for {model}",
            found=wrong,
            wanted="the known answer",
            todo="look at what changed in the model; nobody was sent to the candidate",
        )


def _measure(root: Path, candidate: Candidate, client: Client, say: Callable[[str], None]) -> MeasuredQuality | None:
    """The gate's figures, with the network's answers taken from the server."""
    if candidate.artifact.quality is None:
        return None
    spec = load(root / "models" / candidate.model, root)
    cache = BuildCache.of_project(root, say)
    job = job_of(spec, cache, candidate.artifact.variant, say=say)
    with operators_of(spec):
        quality = measure(job, _Served(client.model(spec.network_name)), lossless=False)
    measured = replace(candidate.artifact, quality=quality)
    outcome = judge(spec, measured)
    if not outcome.passed:
        error = refuse(spec, measured, outcome)
        raise GateError(
            error.where,
            found=f"through the server: {error.found}",
            wanted=error.wanted,
            todo=error.todo,
            details=error.details,
        )
    return quality


class _Served:
    """A network that a server runs, as `optimize.runner.Runs` has it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def run(self, batch: Batch) -> Batch:
        """Run a batch in parts that the model accepts."""
        import numpy as np

        most = self._model.signature.max_batch_size
        if most == 0:
            return dict(self._model.predict(inputs=batch).outputs)
        items = len(next(iter(batch.values())))
        parts = [
            self._model.predict(inputs={n: a[i : i + most] for n, a in batch.items()}).outputs
            for i in range(0, items, most)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
