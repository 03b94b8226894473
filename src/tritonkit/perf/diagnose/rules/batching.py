"""Rules about batches: requests that wait for one without need, and requests that run alone though they could share."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tritonkit.perf.diagnose.evidence import Evidence, ModelEvidence
from tritonkit.perf.diagnose.finding import Finding
from tritonkit.perf.diagnose.rules.common import BUSY, at_stake, parts, runs_alone, waits

__all__ = ["delay_too_short", "no_dynamic_batching", "queue_delay_too_long", "serial_callers", "shapes_differ"]

_LEAST_DELAY_MS = 5.0
_IDLE = 0.5


def queue_delay_too_long(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """Requests wait for the batcher's delay, not for an instance: instances are idle over half of the time, and the
    wait is at least 40 % of the delay and a third of the request's time.

    Requests that come evenly and fill no batch wait for half of the delay on average, single ones all of it.
    """
    for _, model in parts(evidence):
        delay, queue, run = model.facts.delay_ms, model.queue_ms or 0.0, model.compute_ms or 0.0
        if not model.facts.batches or delay < _LEAST_DELAY_MS or model.utilization >= _IDLE:
            continue
        if not 0.4 * delay <= queue <= 1.5 * delay or queue < (queue + run) / 3:
            continue
        wanted_ms = min(delay, run / 2)
        yield Finding(
            "queue-delay-too-long",
            model.name,
            queue / (queue + run),
            (
                f"requests wait {queue:.1f} ms for a run of {run:.1f} ms; the batcher's delay is {delay:g} ms",
                f"{model.requests_per_run:.1f} requests share a run, of at most {model.facts.max_batch_size},"
                f" and instances are busy {model.utilization:.0%} of the time",
            ),
            f"a delay of at most {wanted_ms:.1f} ms, half of a run (serving.batching, max_queue_delay_microseconds)",
            f"{queue - wanted_ms:.1f} ms less of {queue + run:.1f} ms: the wait falls to the delay",
        )


def shapes_differ(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """Requests wait together in the queue of a model that batches, yet each runs alone. When an instance is free, the
    batcher takes only waiting requests of one shape. It fires
    where inputs have open axes, `allow_ragged_batch` is off, and instances are busy 70 % of the time.
    """
    for _, model in parts(evidence):
        if not (model.facts.batches and model.facts.open_axes and runs_alone(model)):
            continue
        if waits(model) and model.utilization >= BUSY:
            yield Finding(
                "shapes-differ",
                model.name,
                _left(model),
                (*_alone(model), f"the shape of {', '.join(model.facts.open_axes)} may differ from request to request"),
                "pad to a few lengths, before the model or in the client, so that requests of a length meet; or allow"
                " ragged batches where the model can take them",
                _gain(model),
            )


def no_dynamic_batching(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """Requests wait for a model that takes batches but runs one request at a time, because it has no batcher.

    It fires where instances are busy 70 % of the time or more: only then do requests wait for runs.
    """
    for _, model in parts(evidence):
        if model.facts.batches or not runs_alone(model):
            continue
        if waits(model) and model.utilization >= BUSY:
            yield Finding(
                "no-dynamic-batching",
                model.name,
                _left(model),
                (*_alone(model), f"max_batch_size is {model.facts.max_batch_size}, and there is no dynamic_batching"),
                "switch batching on: serving.batching in its spec (dynamic_batching {} in config.pbtxt)",
                _gain(model),
            )


def delay_too_short(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """Two requests or more are run at the same time, each alone, by a model that batches: each came when an
    instance was free, and the batcher did not wait for the next.

    It fires where 1.8 instances or more are running on average, hardly anything waits, and instances are busy 70 %
    of the time or a request takes longer in the server than it may.
    """
    for _, model in parts(evidence):
        if not (model.facts.batches and runs_alone(model)) or waits(model):
            continue
        if model.busy < 1.8 or not at_stake(model, target_ms):
            continue
        together = min(model.facts.max_batch_size, max(2, round(model.busy)))
        delay_ms = 1e3 * (together - 1) / model.rate_per_s
        yield Finding(
            "delay-too-short",
            model.name,
            _left(model),
            (
                *_alone(model),
                f"{model.busy:.1f} requests are run at the same time, each by an instance of its own",
                f"the delay is {model.facts.delay_ms:g} ms, and a request comes every {1e3 / model.rate_per_s:.1f} ms",
            ),
            f"a delay of {delay_ms:.1f} ms (serving.batching, max_queue_delay_microseconds), or fewer instances",
            f"runs of {together} requests in place of {together} runs, for {delay_ms:.1f} ms of waiting at most"
            " (requests that come within the delay)",
        )


def serial_callers(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A model that batches always has one request, never two: each is sent when the one before is answered.

    In every interval there is between 0.6 and 1.3 of a request in the server on average, and at least 0.75 in
    all; requests of independent callers come together or not at all for a while. Nothing waits.
    """
    for _, model in parts(evidence):
        least, most = model.in_flight_range
        if not (model.facts.batches and runs_alone(model)) or waits(model):
            continue
        if not (model.in_flight >= 0.75 and least >= 0.6 and most <= 1.3):
            continue
        rate, run = model.rate_per_s, model.compute_ms or 0.0
        size = model.facts.max_batch_size
        yield Finding(
            "serial-callers",
            model.name,
            1 - 1 / size,
            (
                *_alone(model),
                f"{model.in_flight:.2f} requests are in it at a time, from {least:.2f} to {most:.2f}",
                f"{rate:.1f} requests/s of {run:.1f} ms each: the next comes when the one before is answered",
            ),
            "send requests at the same time: AsyncClient, `predict_many`, several threads, or a batch in one request",
            f"up to {size} times the rate, if a run of {size} takes no longer than one of 1 (the bound)",
        )


def _alone(model: ModelEvidence) -> tuple[str, ...]:
    sentence = f"{model.requests_per_run:.2f} requests share a run, of at most {model.facts.max_batch_size}"
    if model.queue_ms and waits(model):
        sentence += f", though they wait {model.queue_ms:.0f} ms for a run of {model.compute_ms:.0f} ms"
    return (sentence, f"instances are busy {min(1.0, model.utilization):.0%} of the time")


def _left(model: ModelEvidence) -> float:
    """The share of the runs' time that batches could save, at most."""
    return 1 - 1 / max(1, min(model.facts.max_batch_size, math.ceil(model.in_flight)))


def _gain(model: ModelEvidence) -> str:
    """The bound in words: no run of several was observed, so its duration is unknown."""
    share = max(2, min(model.facts.max_batch_size, math.floor(model.in_flight)))
    rest = max(0.0, (model.queue_ms or 0.0) - (share - 1) * (model.compute_ms or 0.0))
    return (
        f"up to {share} times the rate ({model.in_flight:.1f} requests are in it at a time), and a wait of {rest:.0f}"
        f" in place of {model.queue_ms:.0f} ms, if a run of {share} takes no longer than one of 1 (the bound)"
    )
