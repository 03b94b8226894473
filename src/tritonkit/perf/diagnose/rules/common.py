"""Questions that several rules ask of the evidence, each with its threshold."""

from __future__ import annotations

from collections.abc import Iterator

from tritonkit.perf.diagnose.evidence import Evidence, ModelEvidence, ServerEvidence
from tritonkit.perf.diagnose.language_evidence import LanguageEvidence
from tritonkit.perf.diagnose.snapshot import LanguageFacts

__all__ = ["BUSY", "GPU_WORKS", "at_stake", "full", "grows", "languages", "may_add", "parts", "runs_alone", "waits"]

BUSY = 0.7
"""Busy share of the instances above which requests wait more than twice a run in a queue with one server (M/M/1)."""
GPU_WORKS = 0.7
"""Use of a GPU from which on it is the limit itself: with 75 % of an H200 used, another instance brought 7 % more."""
FULL = 0.85
"""Under steady load this share is reached only if a request is nearly always waiting. The rest is the gap between two
runs and the edges of the window."""
_LEAST_WAIT_MS = 5.0
_ALONE = 1.2
"""Requests in a run: more than that is a batch now and then."""


def parts(evidence: Evidence) -> Iterator[tuple[ServerEvidence, ModelEvidence]]:
    """Every model that ran, with its server; language models, of which Triton's runs say nothing, left out."""
    for server in evidence.servers:
        for model in server.parts:
            figures = (model.compute_ms, model.queue_ms, model.requests_per_run)
            if model.runs_per_s and None not in figures and model.facts.language is None:
                yield server, model


def languages(evidence: Evidence) -> Iterator[tuple[ServerEvidence, ModelEvidence, LanguageFacts, LanguageEvidence]]:
    """Every language model that answered, with its server."""
    for server in evidence.servers:
        for model in server.parts:
            facts, language = model.facts.language, model.language
            if facts is not None and language is not None and language.busy:
                yield server, model, facts, language


def waits(model: ModelEvidence) -> bool:
    """Whether requests wait for a good part of what a run takes, and long enough to notice."""
    queue, run = model.queue_ms or 0.0, model.compute_ms or 0.0
    return queue >= max(_LEAST_WAIT_MS, 0.3 * run)


def full(model: ModelEvidence) -> bool:
    """Whether all instances are busy nearly all the time."""
    return model.utilization >= FULL


def runs_alone(model: ModelEvidence) -> bool:
    """Whether requests could share a run and do not.

    They cannot where one request already fills over half of the largest batch.
    """
    per_run, items = model.requests_per_run, model.items_per_run
    if per_run is None or items is None or model.facts.sequences:
        return False
    fits_two = 2 * items / max(per_run, 1.0) <= model.facts.max_batch_size
    return model.facts.max_batch_size > 1 and per_run <= _ALONE and fits_two


def at_stake(model: ModelEvidence, target_ms: float) -> bool:
    """Whether it matters: the instances are busy, or a request takes longer than it may."""
    return model.utilization >= BUSY or (model.server_ms or 0.0) > target_ms


def grows(model: ModelEvidence) -> bool:
    """Whether the queue grows: waits are a third longer at the window's end than at its start, or more
    requests wait by half a second's worth of them, or a full queue refused some."""
    if model.rejected:
        return True
    if model.pending is not None:
        first, last = model.pending
        if last - first >= max(5.0, 0.5 * model.rate_per_s):
            return True
    early, late = model.early_queue_ms, model.late_queue_ms
    return early is not None and late is not None and late >= max(1.3 * early, early + 20.0)


def may_add(server: ServerEvidence, model: ModelEvidence) -> bool:
    """Whether more instances would have something to run on.

    On a GPU, it must be used less than 70 %. Elsewhere there must be fewer instances than cores, and the server must
    leave half a core unused. If the machine is not observed, they may be added.
    """
    if model.facts.gpu and server.gpu_busy is not None:
        return server.gpu_busy < GPU_WORKS
    if server.machine is None:
        return True
    machine = server.machine
    return model.facts.instances < machine.cores and machine.server_cores <= machine.cores - 0.5
