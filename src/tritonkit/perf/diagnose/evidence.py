"""What changed between looks: rates, waits, batch sizes, use of instances and cores. Pure: no clock, no I/O."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tritonkit.client import ModelStatistics
from tritonkit.perf.diagnose.configuration import Role, roles_of
from tritonkit.perf.diagnose.language_evidence import LanguageEvidence, language_evidence
from tritonkit.perf.diagnose.machine_evidence import MachineEvidence, machine_evidence
from tritonkit.perf.diagnose.snapshot import Look, ModelFacts, Observation

__all__ = ["Evidence", "ModelEvidence", "ServerEvidence", "evidence_of"]


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """One model on one server, over the window. Times are means; None where nothing ran.

    Args:
        role: its part in the ensemble it was called through, "" where it is called by itself.
        rate_per_s: requests that succeeded. failed: requests that did not.
        runs_per_s: of the model. requests_per_run, items_per_run: the batch sizes reached.
        queue_ms, server_ms: of a request: waiting, and all in the server.
        compute_ms: of a run. per_request_ms: that part of it for which a request is there.
        busy: instances that were running, on average. utilization: the same as a share of them.
        in_flight: requests in the server, on average (Little's law: rate x time).
        in_flight_range: the least and the most of it in any interval.
        early_queue_ms, late_queue_ms: in the first and last third; early_compute_ms,
            late_compute_ms: the slowest interval of the first half, and the median of the last half.
        pending: requests that waited at the first and the last look. rejected: by a full queue.
        runs_before: since it was loaded, until the window; 0 where it was loaded within it.
        lookups, hits: of the response cache.
        sizes: runs by batch size.
        language: of a language model, whose requests share one running batch: to Triton a request is a short run and
            its answer is nobody's time, so of the above only counts of requests say anything.
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
    language: LanguageEvidence | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.facts.name

    @property
    def utilization(self) -> float:
        """The part of its instances that was running."""
        return self.busy / self.facts.instances


@dataclass(frozen=True, slots=True)
class ServerEvidence:
    """One server: its models that were called, what callers see of it, its machine.

    Args:
        parts: the models that run. entries: those that are called, ensembles among them.
        trip_ms: a call without a model, there and back. probe_ms: a request of our own, or of this
            program's client, of which own_ms outside of the wire; medians.
        probes, probe_errors: how many. error: why it could not be looked at, in the last looks.
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

    @property
    def rate_per_s(self) -> float:
        """Requests that callers sent, our own included."""
        return sum(each.rate_per_s for each in self.entries)

    @property
    def server_ms(self) -> float | None:
        """The mean time of a request in the server, language models left out."""
        known = [e for e in self.entries if e.facts.language is None]
        times = [(e.rate_per_s, e.server_ms) for e in known if e.server_ms is not None]
        whole = sum(rate for rate, _ in times)
        return sum(rate * ms for rate, ms in times) / whole if whole else None

    @property
    def first_token_ms(self) -> float | None:
        """The mean time to the first token of its slowest language model."""
        seen = [part.language for part in self.parts if part.language is not None]
        return max((each.first_ms for each in seen if each.first_ms is not None), default=None)

    @property
    def compute_ms(self) -> float:
        """What all runs for a mean request take, one after the other."""
        known = [e for e in self.parts if e.facts.language is None]
        own = [(e.compute_ms or 0.0) * (e.runs_per_s > 0) for e in known]
        return sum(own)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All servers over the window."""

    servers: tuple[ServerEvidence, ...]
    entry: str = ""
    notes: tuple[str, ...] = ()

    @property
    def traffic_per_s(self) -> float:
        """Requests of others than ourselves."""
        own = sum(each.probes / max(each.seconds, 1e-9) for each in self.servers)
        return max(0.0, sum(each.rate_per_s for each in self.servers) - own)

    @property
    def running(self) -> float:
        """Sequences of language models that run, on average; one may outlast the window."""
        every = [part.language for server in self.servers for part in server.parts]
        return sum(each.running for each in every if each is not None)


def evidence_of(seen: Observation) -> Evidence:
    """Work out what an observation says."""
    servers = tuple(_server(seen, address, looks) for address, looks in seen.looks.items())
    return Evidence(servers, seen.entry, seen.notes)


def _server(seen: Observation, address: str, looks: Sequence[Look]) -> ServerEvidence:
    good = [look for look in looks if look.models]
    error = looks[-1].error if looks else "no look was made"
    probes = [probe for probe in seen.probes if probe.address == address]
    calls = [call for call in seen.calls if call.address == address]
    right = [probe for probe in (*probes, *calls) if not probe.error]
    trips = seen.round_trips_ms.get(address, ())
    roles = _roles(seen)
    seconds = good[-1].at_s - good[0].at_s if len(good) > 1 else 0.0
    models = [_model(facts, address, good, roles) for facts in seen.facts.values()] if seconds else []
    steps = {step for facts in seen.facts.values() for step in (*facts.steps, *facts.calls)}
    return ServerEvidence(
        address,
        seconds,
        tuple(each for each in models if not each.facts.steps),
        tuple(e for e in models if e.name == seen.entry or (not seen.entry and e.name not in steps)),
        statistics.median(trips) if trips else None,
        statistics.median(p.total_ms for p in right) if right else None,
        statistics.median(p.total_ms - p.wait_ms for p in right) if right else None,
        len(probes),
        tuple(dict.fromkeys(probe.error for probe in probes if probe.error)),
        machine_evidence(looks, seen.runnable, seen.runnable_all),
        error,
    )


def _roles(seen: Observation) -> dict[str, Role]:
    roles: dict[str, Role] = {}
    for facts in seen.facts.values():
        roles |= roles_of(facts, seen.facts)
    return roles


Number = Callable[[str], float]


def _model(facts: ModelFacts, address: str, looks: Sequence[Look], roles: Mapping[str, Role]) -> ModelEvidence:
    name = facts.name
    pairs = [
        (after.at_s - before.at_s, before.models.get(name), after.models[name])
        for before, after in pairwise(looks)
        if name in after.models
    ]
    if not pairs:
        return ModelEvidence(address, facts, roles.get(name, ""))
    seconds = sum(each[0] for each in pairs)
    steps = [(s, _rise(before, after), _run_s(before, after)) for s, before, after in pairs]

    def more(key: str) -> float:
        return sum(rise(key) for _, rise, _ in steps)

    requests, runs, items = more("success_count"), more("execution_count"), more("inference_count")
    run_s = sum(each[2] for each in steps)
    waits = _by_interval(steps, "queue_s", "success_count")
    flights = [rise("success_s") / s for s, rise, _ in steps]
    computes = [1e3 * took / n for _, rise, took in steps if (n := rise("execution_count"))]
    first = pairs[0][1]
    pending = [look.pending.get(name, 0.0) for look in looks if look.pending is not None]
    rejected = [look.rejected.get(name, 0.0) for look in looks if look.rejected is not None]
    # Answers of the response cache are requests without a run.
    ran = requests - more("cache_hit_count")
    return ModelEvidence(
        address,
        facts,
        roles.get(name, ""),
        rate_per_s=requests / seconds,
        failed=int(more("failure_count")),
        runs_per_s=runs / seconds,
        requests_per_run=ran / runs if runs else None,
        items_per_run=items / runs if runs else None,
        queue_ms=1e3 * more("queue_s") / requests if requests else None,
        server_ms=1e3 * more("success_s") / requests if requests else None,
        compute_ms=1e3 * run_s / runs if runs else None,
        busy=run_s / seconds,
        in_flight=more("success_s") / seconds,
        in_flight_range=(min(flights), max(flights)),
        early_queue_ms=_mean(waits[: -(-len(waits) // 3)]),
        late_queue_ms=_mean(waits[-(-len(waits) // 3) :]),
        early_compute_ms=max(computes[: len(computes) // 2], default=None),
        late_compute_ms=statistics.median(computes[len(computes) // 2 :]) if computes else None,
        pending=(pending[0], pending[-1]) if pending else None,
        rejected=int(rejected[-1] - rejected[0]) if rejected else None,
        runs_before=_runs_before(first, pairs[-1][2]),
        lookups=int(more("cache_hit_count") + more("cache_miss_count")),
        hits=int(more("cache_hit_count")),
        sizes=_sizes(first, pairs[-1][2]),
        language=language_evidence(
            [(look.at_s, look.language[name]) for look in looks if look.language and name in look.language]
        ),
    )


def _rise(before: ModelStatistics | None, after: ModelStatistics) -> Number:
    """What a counter rose by; one that fell began anew, with the model."""
    fresh = before is None or after.execution_count < before.execution_count
    return lambda key: getattr(after, key) - (0 if fresh else getattr(before, key))


def _run_s(before: ModelStatistics | None, after: ModelStatistics) -> float:
    """Seconds of all runs, each counted once whatever its batch."""
    spent = sum(each.compute_s for each in after.batches)
    if before is None or after.execution_count < before.execution_count:
        return spent
    return max(0.0, spent - sum(each.compute_s for each in before.batches))


def _runs_before(first: ModelStatistics | None, last: ModelStatistics) -> int:
    if first is None or last.execution_count < first.execution_count:
        return 0
    return first.execution_count


def _by_interval(steps: Sequence[tuple[float, Number, float]], key: str, count: str) -> list[float]:
    """Milliseconds of a mean request, interval by interval; without those in which none ended."""
    return [1e3 * rise(key) / n for _, rise, _ in steps if (n := rise(count))]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _sizes(first: ModelStatistics | None, last: ModelStatistics) -> dict[int, int]:
    counts: dict[int, int] = {}
    for each in last.batches:
        counts[each.size] = counts.get(each.size, 0) + each.runs
    if first is not None and last.execution_count >= first.execution_count:
        for each in first.batches:
            counts[each.size] = counts.get(each.size, 0) - each.runs
    return {size: runs for size, runs in sorted(counts.items()) if runs > 0}
