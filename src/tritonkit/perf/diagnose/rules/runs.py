"""Rules about the runs themselves: the part that takes the time, and why."""

from __future__ import annotations

from collections.abc import Iterator

from tritonkit.perf.diagnose.evidence import Evidence, ModelEvidence, ServerEvidence
from tritonkit.perf.diagnose.finding import Finding
from tritonkit.perf.diagnose.rules.common import at_stake, parts

__all__ = ["cache_misses", "cold_start", "decoding", "gil", "model_execution", "post_processing"]

_LEAST_RUN_MS = 5.0
_COLD_RUNS, _COLD_TIMES, _COLD_MS = 100, 5.0, 20.0
_GIL_CORES, _GIL_WAITS_PER_S, _GIL_THREADS = (0.5, 1.15), 50.0, 2
_HITS, _LOOKUPS = 0.2, 10


def cold_start(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A model that has just been loaded ran five times as long at first as it does now, and 20 ms longer.

    "Just" means fewer than 100 runs before the window. First runs wait for compilation, memory and caches;
    a model that has run a hundred times is past that.
    """
    for _, model in parts(evidence):
        early, late = model.early_compute_ms, model.late_compute_ms
        if early is None or late is None or model.runs_before >= _COLD_RUNS:
            continue
        if early >= _COLD_TIMES * late and early - late >= _COLD_MS:
            yield Finding(
                "cold-start",
                model.name,
                1 - late / early,
                (
                    f"runs took {early:.0f} ms at first and take {late:.1f} ms now",
                    f"it had run {model.runs_before} times before"
                    if model.runs_before
                    else "it was loaded during the look, or just before",
                ),
                "warm it up before it is ready: serving.warmup in its spec (model_warmup), with every batch size and"
                " length that callers send",
                f"first requests of {late:.1f} ms instead of {early:.0f} ms: the same runs once they are warm",
            )


def gil(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A Python stub has at least two working threads that together never use more than one core, and each stops
    fifty times a second or more to wait.

    A thread that waits for the interpreter's lock requests it every 5 ms (`sys.getswitchinterval`): with two hundred
    such waits a second, and half a core in use, the threads wait for the lock. Threads that compute without it hardly
    ever stop; observed: 120 to 230 waits a second with the lock, and 4 to 9 without.
    """
    for server, model in parts(evidence):
        if server.machine is None or server.machine.cores < 2 or not at_stake(model, target_ms):
            continue
        for stub in server.machine.stubs:
            if stub.model != model.name or stub.working_threads < _GIL_THREADS:
                continue
            least, most = _GIL_CORES
            if not least <= stub.cores <= most or stub.waits_per_s < _GIL_WAITS_PER_S:
                continue
            count = min(stub.working_threads, server.machine.cores)
            yield Finding(
                "gil",
                model.name,
                1 - 1 / stub.working_threads,
                (
                    f"{stub.working_threads} threads of its process {stub.pid} share {stub.cores:.2f} cores, of"
                    f" {server.machine.cores}, and each waits {stub.waits_per_s:.0f} times a second",
                    f"instances are busy {min(1.0, model.utilization):.0%} of the time",
                ),
                "more instances instead of threads: each has its own process and lock; or numpy and other libraries"
                " that release the lock",
                f"up to {count} times the rate: {count} processes on {server.machine.cores} cores (the bound)",
            )


def cache_misses(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """The response cache is on, at most a fifth of its lookups (ten or more) hit, and runs take 5 ms or more."""
    for _, model in parts(evidence):
        if not model.facts.caches or model.lookups < _LOOKUPS or (model.compute_ms or 0) < _LEAST_RUN_MS:
            continue
        hits = model.hits / model.lookups
        if hits <= _HITS:
            yield Finding(
                "cache-misses",
                model.name,
                1 - hits,
                (
                    f"{model.hits} of {model.lookups} lookups hit ({hits:.0%}); a miss costs a run of"
                    f" {model.compute_ms:.1f} ms",
                ),
                "a larger cache (--cache-config local,size=N), equal inputs where the meaning is equal; or no cache,"
                " if requests do not repeat",
                f"{model.compute_ms:.1f} ms less for each request that hits: at 50 % hits"
                f" {(0.5 - hits) * (model.compute_ms or 0):.1f} ms of the mean",
            )


def decoding(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A step before the network takes more of a request's runs than all others together, and that matters: requests
    take longer in the server than they may, or the step's instances are busy 70 % of the time."""
    return _longest(
        evidence,
        target_ms,
        "before",
        "decoding",
        "send smaller inputs (resize in the client), more instances of the step, or the native steps"
        " (make native) instead of Python",
    )


def post_processing(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """A step after the network takes more of a request's runs than all others together, and that matters: requests
    take longer in the server than they may, or the step's instances are busy 70 % of the time."""
    return _longest(
        evidence,
        target_ms,
        "after",
        "post-processing",
        "request fewer outputs, do it in numpy or in the network itself, or run more instances of the step",
    )


def model_execution(evidence: Evidence, target_ms: float) -> Iterator[Finding]:
    """The network, or a model called by itself, takes more of a request's runs than all others together, and that
    matters as it does for steps."""
    return _longest(
        evidence,
        target_ms,
        "network",
        "model-execution",
        "a faster variant (`tritonkit report` compares INT8, OpenVINO and others), larger batches, or more cores",
    )


def _longest(evidence: Evidence, target_ms: float, role: str, cause: str, change: str) -> Iterator[Finding]:
    """Parts with over half of the time of all runs, if requests take longer in the server than they may or the part's
    instances are busy over 70 % of the time."""
    for server, model in parts(evidence):
        if (model.role or "network") != role or not _matters(server, model, target_ms):
            continue
        run, whole = model.compute_ms or 0.0, _time_of_runs(server, model)
        share = run / whole if whole else 0.0
        if share <= 0.5:
            continue
        took = server.server_ms or model.server_ms or 0.0
        yield Finding(
            cause,
            model.name,
            share,
            (
                f"its run takes {run:.1f} ms, {share:.0%} of the runs for a request; {took:.1f} ms in the server",
                f"its instances are busy {min(1.0, model.utilization):.0%} of the time",
            ),
            change,
            f"twice as fast, it would save {run / 2:.1f} ms of a request's {took:.1f} ms (half of its run)",
        )


def _matters(server: ServerEvidence, model: ModelEvidence, target_ms: float) -> bool:
    return at_stake(model, target_ms) or (bool(model.role) and (server.server_ms or 0) > target_ms)


def _time_of_runs(server: ServerEvidence, model: ModelEvidence) -> float:
    """The latency in the server of the ensemble that the part belongs to, or of the model alone."""
    whole = 0.0
    for entry in server.entries:
        if model.name in entry.facts.steps:
            ran = [p for p in server.parts if p.name in entry.facts.steps]
            whole = max(whole, sum(p.compute_ms or 0.0 for p in ran))
    return whole or model.compute_ms or 0.0
