"""A request's time by parts: the client's share, the wire's, and each part of the pipeline.

The client's share is timed here, the server's is read from Triton's own counters before and after; the rest is the
wire's. So the spans always add up to the measured mean.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from tritonkit.errors import InferenceError
from tritonkit.repository.render.values import EnsembleStep

if TYPE_CHECKING:
    from tritonkit.client import Client, ModelStatistics, Reply

__all__ = ["RequestProfile", "Span", "profile_requests", "spans_of", "steps_of"]

_WARM_REQUESTS = 10
_COUNTED_S, _LOOK_S = 2.0, 0.01
_SECONDS = ("queue_s", "compute_input_s", "compute_infer_s", "compute_output_s")


@dataclass(frozen=True)
class Span:
    """A stretch of the mean request: its place, its work, and its duration.

    `where` is "client", "wire", "server" or a Triton model. `source` is the measurement: "client",
    "server" (Triton's counters), or "difference" for the remaining time.
    """

    where: str
    what: str
    ms: float
    source: str


@dataclass(frozen=True)
class RequestProfile:
    """A number of requests, and the parts of their mean time; the spans add up to `mean_ms`."""

    model: str
    address: str
    requests: int
    concurrency: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    spans: tuple[Span, ...]
    batches: dict[str, float]
    """Triton model -> mean items per run; models that did not run are left out."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, each span with its share of the mean."""
        spans = [asdict(span) | {"share": span.ms / self.mean_ms} for span in self.spans]
        return asdict(self) | {"spans": spans}


def profile_requests(
    client: Client, model: str, inputs: Mapping[str, Any], requests: int = 200, concurrency: int = 1
) -> RequestProfile:
    """Send the same request repeatedly, and split its time.

    Args:
        inputs: one item by input name, as `Model.predict` takes it.
        concurrency: concurrent callers, each waiting for its answer: above 1, queues show.

    Raises:
        ClientError: the model is not served, or a request failed.
    """
    callee = client.model(model)
    names = list(dict.fromkeys([model, *(step.model for step in steps_of(client, model))]))

    def send(count: int) -> list[Reply]:
        return [callee.predict(inputs=inputs) for _ in range(count)]

    start = _counters(client, names)
    send(_WARM_REQUESTS)
    before = _counted(client, start, _WARM_REQUESTS)
    replies = _in_threads(send, requests, concurrency)
    after = _counted(client, before, requests)
    total_ms = [reply.timing.total_s * 1e3 for reply in replies]
    wait_ms = statistics.fmean(reply.timing.wait_s * 1e3 for reply in replies)
    spent = {name: _spent(before[name], after[name]) for name in names}
    mean_ms = statistics.fmean(total_ms)
    return RequestProfile(
        model,
        client.address,
        requests,
        concurrency,
        mean_ms,
        statistics.median(total_ms),
        statistics.quantiles(total_ms, n=20)[-1] if requests > 1 else total_ms[0],
        spans_of(model, spent, mean_ms, wait_ms),
        {
            name: round(statistics.inference_count / statistics.execution_count, 2)
            for name, statistics in _parts(model, spent).items()
            if statistics.execution_count
        },
        tuple(_notes(model, spent, requests, concurrency)),
    )


def steps_of(client: Client, model: str) -> tuple[EnsembleStep, ...]:
    """The steps of an ensemble in order; none for any other model."""
    steps = client.config(model).ensemble_scheduling.step
    return tuple(EnsembleStep(s.model_name, dict(s.input_map), dict(s.output_map)) for s in steps)


def spans_of(model: str, spent: Mapping[str, ModelStatistics], mean_ms: float, wait_ms: float) -> tuple[Span, ...]:
    """The mean request by parts: `mean_ms` in the client, of which it waited `wait_ms`.

    The last span is negative if the server's parts overlap: Triton counts a model's output phase until
    the model is free again, and by then the answer is in the next step or on the wire.

    Args:
        spent: increases of the counters of the model, and of an ensemble's steps in order.
    """
    whole = spent[model]
    count = whole.success_count or 1
    server_ms = whole.success_s / count * 1e3
    spans = [
        Span("client", "check, encode, decode", mean_ms - wait_ms, "client"),
        Span("wire", "gRPC, both ways", wait_ms - server_ms, "difference"),
    ]
    parts = _parts(model, spent)
    inside = [
        Span(name, what, getattr(statistics, key) / count * 1e3, "server")
        for name, statistics in parts.items()
        for key, what in zip(_SECONDS, ("queue", "transfer in", "compute", "transfer out"), strict=True)
    ]
    left = server_ms - sum(span.ms for span in inside)
    alone = parts.keys() == {model}
    what = "overlap" if left < 0 else "unaccounted" if alone else "between the steps"
    return (*spans, *inside, Span("server", what, left, "difference"))


def _parts(model: str, spent: Mapping[str, ModelStatistics]) -> dict[str, ModelStatistics]:
    """The models that run: an ensemble's steps, or the model itself."""
    return {name: statistics for name, statistics in spent.items() if name != model} or {model: spent[model]}


def _in_threads(send: Any, requests: int, concurrency: int) -> list[Reply]:
    """Let a number of callers send their part concurrently."""
    if concurrency == 1:
        return list(send(requests))
    callers = min(concurrency, requests)
    together = threading.Barrier(callers)

    def caller(count: int) -> list[Reply]:
        together.wait()
        return list(send(count))

    counts = [requests // callers + (place < requests % callers) for place in range(callers)]
    with ThreadPoolExecutor(callers) as pool:
        return [reply for replies in pool.map(caller, counts) for reply in replies]


def _counters(client: Client, names: Sequence[str]) -> dict[str, ModelStatistics]:
    """The counters of each model, summed over its loaded versions."""
    return {name: _together(client.statistics(name)) for name in names}


def _counted(client: Client, before: Mapping[str, ModelStatistics], requests: int) -> dict[str, ModelStatistics]:
    """The counters with these requests: Triton counts a request after its answer has left, often within a millisecond.

    After `_COUNTED_S` the counters as they are.

    Raises:
        InferenceError: counters fell.
    """
    deadline = time.monotonic() + _COUNTED_S
    while True:
        after = _counters(client, list(before))
        least = min(_spent(before[name], after[name]).success_count for name in before)
        if least >= requests or time.monotonic() > deadline:
            return after
        time.sleep(_LOOK_S)


def _together(versions: Sequence[ModelStatistics]) -> ModelStatistics:
    return _combined(versions[0], lambda key: sum(getattr(version, key) for version in versions))


def _spent(before: ModelStatistics, after: ModelStatistics) -> ModelStatistics:
    """The increases of the counters."""
    if after.success_count < before.success_count:
        raise InferenceError(
            f"model {after.name}",
            found="its counters fell: it was reloaded while it was measured",
            todo="measure again",
        )
    return _combined(after, lambda key: getattr(after, key) - getattr(before, key))


def _combined(like: ModelStatistics, value: Any) -> ModelStatistics:
    names = ("name", "version", "batches")
    numbers = {f.name: value(f.name) for f in fields(like) if f.name not in names}
    return type(like)(name=like.name, version=like.version, **numbers)


def _notes(model: str, spent: Mapping[str, ModelStatistics], requests: int, concurrency: int) -> list[str]:
    notes = []
    if concurrency > 1:
        notes.append("the wire's time includes the time that this process's callers wait for each other")
    count = spent[model].success_count
    if count > requests:
        notes.append(f"others sent {count - requests} requests meanwhile: the server's times are means over all")
    if count and not any(statistics.execution_count for statistics in _parts(model, spent).values()):
        notes.append("nothing ran: the answers came from the server's response cache")
    return notes
