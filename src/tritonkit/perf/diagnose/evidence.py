"""Changes between looks: rates, waits, batch sizes, use of instances and cores. Pure: no clock, no I/O."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tritonkit.client import ModelStatistics
from tritonkit.perf.diagnose.configuration import Role, roles_of
from tritonkit.perf.diagnose.gpu_evidence import GpuEvidence, gpu_evidence
from tritonkit.perf.diagnose.language_evidence import LanguageEvidence, language_evidence
from tritonkit.perf.diagnose.machine_evidence import MachineEvidence, machine_evidence
from tritonkit.perf.diagnose.snapshot import Look, ModelFacts, Observation

__all__ = ["Evidence", "ModelEvidence", "ServerEvidence", "evidence_of"]


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """One model on one server, over the window. Times are means; None if nothing ran.

    Args:
        role: its part in the ensemble through which it was called; "" if it is called by itself.
        rate_per_s: successful requests. failed: failed requests.
        runs_per_s: runs of the model. requests_per_run, items_per_run: the batch sizes that were reached.
        queue_ms, server_ms: time of a request in the queue, and its whole time in the server.
        compute_ms: duration of a run.
        busy: the mean number of running instances. utilization: the same as a share of all instances.
        in_flight: the mean number of requests in the server (Little's law: rate x time).
        in_flight_range: the lowest and highest number in any interval.
        early_queue_ms, late_queue_ms: means of the first and last third; early_compute_ms,
            late_compute_ms: the slowest interval of the first half, and the median of the last half.
        pending: requests that waited at the first and the last look. rejected: requests that a full queue refused.
        runs_before: runs between loading and the window; 0 if it was loaded within the window.
        lookups, hits: lookups and hits of the response cache.
        sizes: runs by batch size.
        copies: the share of the runs' time before and after the network, by Triton's own times of a request.
        language: figures of a language model. Its requests share one running batch, and Triton's statistics do not
            include the time of an answer, so of the fields above only counts of requests are meaningful.
    """

    address: str
    facts: ModelFacts
    role: Role | str = ""
    rate_per_s: float = 0.0
    failed: int = 0
    runs_per_s: float = 0.0
    requests_per_run: float | None = None
    items_per_run: float | None = None
    queue_ms: float | None = None
    server_ms: float | None = None
    compute_ms: float | None = None
    busy: float = 0.0
    in_flight: float = 0.0
    in_flight_range: tuple[float, float] = (0.0, 0.0)
    early_queue_ms: float | None = None
    late_queue_ms: float | None = None
    early_compute_ms: float | None = None
    late_compute_ms: float | None = None
    pending: tuple[float, float] | None = None
    rejected: int | None = None
    runs_before: int = 0
    lookups: int = 0
    hits: int = 0
    sizes: Mapping[int, int] = field(default_factory=dict)
    copies: float | None = None
    language: LanguageEvidence | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.facts.name

    @property
    def utilization(self) -> float:
        """The running share of its instances."""
        return self.busy / self.facts.instances


@dataclass(frozen=True, slots=True)
class ServerEvidence:
    """One server: the models that were called, their callers' view of it, and its machine.

    Args:
        parts: models that run. entries: models that are called, ensembles among them.
        trip_ms: round trip of a call without a model. probe_ms: duration of a request of our own or of this program's
            client; own_ms: its part outside of the wire. All are medians.
        gpus: its GPUs, by its metrics; empty without them.
        probes, probe_errors: the number of probes, and their errors. error: the reason why the
            last looks failed.
    """

    address: str
    seconds: float
    parts: tuple[ModelEvidence, ...] = ()
    entries: tuple[ModelEvidence, ...] = ()
    trip_ms: float | None = None
    probe_ms: float | None = None
    own_ms: float | None = None
    probes: int = 0
    probe_errors: tuple[str, ...] = ()
    machine: MachineEvidence | None = None
    error: str = ""
    gpus: tuple[GpuEvidence, ...] = ()

    @property
    def gpu_busy(self) -> float | None:
        """The use of its busiest GPU; None if it has none, or none is seen."""
        return max((gpu.use.busy for gpu in self.gpus if gpu.use.busy is not None), default=None)

    @property
    def rate_per_s(self) -> float:
        """Requests of all callers, our own included."""
        return sum(model.rate_per_s for model in self.entries)

    @property
    def server_ms(self) -> float | None:
        """The mean time of a request in the server, language models left out."""
        entries = [e for e in self.entries if e.facts.language is None]
        times = [(e.rate_per_s, e.server_ms) for e in entries if e.server_ms is not None]
        whole = sum(rate for rate, _ in times)
        return sum(rate * ms for rate, ms in times) / whole if whole else None

    @property
    def first_token_ms(self) -> float | None:
        """The mean time to the first token of its slowest language model."""
        languages = [part.language for part in self.parts if part.language is not None]
        return max((language.first_ms for language in languages if language.first_ms is not None), default=None)

    @property
    def compute_ms(self) -> float:
        """The duration of all runs for a mean request, one after the other."""
        parts = [e for e in self.parts if e.facts.language is None]
        runs_ms = [(e.compute_ms or 0.0) * (e.runs_per_s > 0) for e in parts]
        return sum(runs_ms)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All servers over the window."""

    servers: tuple[ServerEvidence, ...]
    entry: str = ""
    notes: tuple[str, ...] = ()

    @property
    def traffic_per_s(self) -> float:
        """Requests of other callers."""
        own = sum(server.probes / max(server.seconds, 1e-9) for server in self.servers)
        return max(0.0, sum(server.rate_per_s for server in self.servers) - own)

    @property
    def running(self) -> float:
        """The mean number of running sequences of language models; one may outlast the window."""
        every = [part.language for server in self.servers for part in server.parts]
        return sum(language.running for language in every if language is not None)


def evidence_of(observation: Observation) -> Evidence:
    """Work out the evidence in an observation."""
    servers = tuple(_server(observation, address, looks) for address, looks in observation.looks.items())
    return Evidence(servers, observation.entry, observation.notes)


def _server(observation: Observation, address: str, looks: Sequence[Look]) -> ServerEvidence:
    good = [look for look in looks if look.models]
    error = looks[-1].error if looks else "no look was made"
    probes = [probe for probe in observation.probes if probe.address == address]
    calls = [call for call in observation.calls if call.address == address]
    right = [probe for probe in (*probes, *calls) if not probe.error]
    trips = observation.round_trips_ms.get(address, ())
    roles = _roles(observation)
    seconds = good[-1].at_s - good[0].at_s if len(good) > 1 else 0.0
    models = [_model(facts, address, good, roles) for facts in observation.facts.values()] if seconds else []
    steps = {step for facts in observation.facts.values() for step in (*facts.steps, *facts.calls)}
    return ServerEvidence(
        address,
        seconds,
        tuple(model for model in models if not model.facts.steps),
        tuple(e for e in models if e.name == observation.entry or (not observation.entry and e.name not in steps)),
        statistics.median(trips) if trips else None,
        statistics.median(p.total_ms for p in right) if right else None,
        statistics.median(p.total_ms - p.wait_ms for p in right) if right else None,
        len(probes),
        tuple(dict.fromkeys(probe.error for probe in probes if probe.error)),
        machine_evidence(looks, observation.runnable, observation.runnable_all),
        error,
        gpu_evidence(good, observation.clocks),
    )


def _roles(observation: Observation) -> dict[str, Role]:
    roles: dict[str, Role] = {}
    for facts in observation.facts.values():
        roles |= roles_of(facts, observation.facts)
    return roles


Number = Callable[[str], float]
_Step = tuple[float, Number, float]
"""An interval between two looks: its seconds, the rise of each counter, the seconds of all runs."""


def _model(facts: ModelFacts, address: str, looks: Sequence[Look], roles: Mapping[str, Role]) -> ModelEvidence:
    name = facts.name
    pairs = [
        (after.at_s - before.at_s, before.models.get(name), after.models[name])
        for before, after in pairwise(looks)
        if name in after.models
    ]
    if not pairs:
        return ModelEvidence(address, facts, roles.get(name, ""))
    steps = [(s, _rise(before, after), _run_s(before, after)) for s, before, after in pairs]
    first, last = pairs[0][1], pairs[-1][2]
    pending = [look.pending.get(name, 0.0) for look in looks if look.pending is not None]
    rejected = [look.rejected.get(name, 0.0) for look in looks if look.rejected is not None]
    return ModelEvidence(
        address,
        facts,
        roles.get(name, ""),
        **_of_window(steps),
        **_of_parts(steps),
        pending=(pending[0], pending[-1]) if pending else None,
        rejected=int(rejected[-1] - rejected[0]) if rejected else None,
        runs_before=_runs_before(first, last),
        sizes=_sizes(first, last),
        language=language_evidence(
            [(look.at_s, look.language[name]) for look in looks if look.language and name in look.language]
        ),
    )


def _of_window(steps: Sequence[_Step]) -> dict[str, Any]:
    """Means and counts over the whole window."""

    def more(key: str) -> float:
        return sum(rise(key) for _, rise, _ in steps)

    requests, runs, run_s = more("success_count"), more("execution_count"), sum(taken for _, _, taken in steps)
    seconds = sum(s for s, _, _ in steps)
    copied, inferred = more("compute_input_s") + more("compute_output_s"), more("compute_infer_s")
    # Answers of the response cache are requests without a run.
    ran = requests - more("cache_hit_count")
    return {
        "rate_per_s": requests / seconds,
        "failed": int(more("failure_count")),
        "runs_per_s": runs / seconds,
        "requests_per_run": ran / runs if runs else None,
        "items_per_run": more("inference_count") / runs if runs else None,
        "queue_ms": 1e3 * more("queue_s") / requests if requests else None,
        "server_ms": 1e3 * more("success_s") / requests if requests else None,
        "compute_ms": 1e3 * run_s / runs if runs else None,
        "busy": run_s / seconds,
        "in_flight": more("success_s") / seconds,
        "lookups": int(more("cache_hit_count") + more("cache_miss_count")),
        "hits": int(more("cache_hit_count")),
        "copies": copied / (copied + inferred) if copied + inferred > 0 else None,
    }


def _of_parts(steps: Sequence[_Step]) -> dict[str, Any]:
    """Figures of parts of the window, compared with each other."""
    waits = _by_interval(steps, "queue_s", "success_count")
    flights = [rise("success_s") / s for s, rise, _ in steps]
    computes = [1e3 * taken / n for _, rise, taken in steps if (n := rise("execution_count"))]
    third, half = -(-len(waits) // 3), len(computes) // 2
    return {
        "in_flight_range": (min(flights), max(flights)),
        "early_queue_ms": _mean(waits[:third]),
        "late_queue_ms": _mean(waits[third:]),
        "early_compute_ms": max(computes[:half], default=None),
        "late_compute_ms": statistics.median(computes[half:]) if computes else None,
    }


def _rise(before: ModelStatistics | None, after: ModelStatistics) -> Number:
    """The increase of a counter; one that fell was reset when the model was loaded again."""
    fresh = before is None or after.execution_count < before.execution_count
    return lambda key: getattr(after, key) - (0 if fresh else getattr(before, key))


def _run_s(before: ModelStatistics | None, after: ModelStatistics) -> float:
    """Seconds of all runs, each counted once whatever its batch size."""
    spent = sum(batch.compute_s for batch in after.batches)
    if before is None or after.execution_count < before.execution_count:
        return spent
    return max(0.0, spent - sum(batch.compute_s for batch in before.batches))


def _runs_before(first: ModelStatistics | None, last: ModelStatistics) -> int:
    if first is None or last.execution_count < first.execution_count:
        return 0
    return first.execution_count


def _by_interval(steps: Sequence[_Step], key: str, count: str) -> list[float]:
    """Milliseconds of a mean request, interval by interval; intervals without a finished request are left out."""
    return [1e3 * rise(key) / n for _, rise, _ in steps if (n := rise(count))]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _sizes(first: ModelStatistics | None, last: ModelStatistics) -> dict[int, int]:
    counts: dict[int, int] = {}
    for batch in last.batches:
        counts[batch.size] = counts.get(batch.size, 0) + batch.runs
    if first is not None and last.execution_count >= first.execution_count:
        for batch in first.batches:
            counts[batch.size] = counts.get(batch.size, 0) - batch.runs
    return {size: runs for size, runs in sorted(counts.items()) if runs > 0}
