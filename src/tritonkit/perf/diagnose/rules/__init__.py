"""The table of rules: evidence -> findings.

The order is that of causes and effects. A throttled server also has queues, slow runs and busy instances, all because
it is throttled. So a cause stands above its effects, and the verdict is the first line that fires.
Within a rule the finding that explains more comes first. A rule says nothing where its evidence is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tritonkit.perf.diagnose.evidence import Evidence
from tritonkit.perf.diagnose.finding import Diagnosis, Finding
from tritonkit.perf.diagnose.rules.batching import (
    delay_too_short,
    no_dynamic_batching,
    queue_delay_too_long,
    serial_callers,
    shapes_differ,
)
from tritonkit.perf.diagnose.rules.gpu import copies_bound, gpu_idle, gpu_throttled, rebuilding_plans, stubs_bound
from tritonkit.perf.diagnose.rules.host import memory, oversubscribed_cores, shared_memory, throttled
from tritonkit.perf.diagnose.rules.language import (
    kv_cache_full,
    large_prefills,
    places_taken,
    slow_decode,
    static_batching,
)
from tritonkit.perf.diagnose.rules.queue import rate_above_capacity, too_few_instances
from tritonkit.perf.diagnose.rules.runs import cache_misses, cold_start, decoding, gil, model_execution, post_processing
from tritonkit.perf.diagnose.rules.servers import bad_replica, network_or_client

__all__ = ["RULES", "TARGET_MS", "Rule", "diagnose"]

TARGET_MS = 50.0
"""The time of a request in the server above which rules look into it: a caller that serves a person has about 100 ms
for everything it does (Nielsen, Usability Engineering, 1993, chapter 5)."""

Rule = Callable[[Evidence, float], Iterable[Finding]]

RULES: Mapping[str, Rule] = {
    "bad-replica": bad_replica,
    "cold-start": cold_start,
    "throttled": throttled,
    "gpu-throttled": gpu_throttled,
    "memory": memory,
    "shared-memory": shared_memory,
    "gil": gil,
    "oversubscribed-cores": oversubscribed_cores,
    "network-or-client": network_or_client,
    "rebuilding-plans": rebuilding_plans,
    "stubs-bound": stubs_bound,
    "copies-bound": copies_bound,
    "static-batching": static_batching,
    "kv-cache-full": kv_cache_full,
    "places-taken": places_taken,
    "large-prefills": large_prefills,
    "slow-decode": slow_decode,
    "cache-misses": cache_misses,
    "queue-delay-too-long": queue_delay_too_long,
    "shapes-differ": shapes_differ,
    "no-dynamic-batching": no_dynamic_batching,
    "delay-too-short": delay_too_short,
    "too-few-instances": too_few_instances,
    "rate-above-capacity": rate_above_capacity,
    "serial-callers": serial_callers,
    "gpu-idle": gpu_idle,
    "decoding": decoding,
    "post-processing": post_processing,
    "model-execution": model_execution,
}


def _unseen(evidence: Evidence) -> list[str]:
    """Language models whose metrics no server reported."""
    parts = [part for server in evidence.servers for part in server.parts]
    reported = {part.name for part in parts if part.language is not None}
    return sorted({part.name for part in parts if part.facts.language} - reported)


def diagnose(evidence: Evidence, target_ms: float = TARGET_MS) -> Diagnosis:
    """Ask every rule.

    Args:
        target_ms: the longest time that a request may take in the server.
    """
    findings = [
        finding
        for rule in RULES.values()
        for finding in sorted(rule(evidence, target_ms), key=lambda finding: -finding.share)
    ]
    notes = list(evidence.notes)
    for name in _unseen(evidence):
        notes.append(f"{name} is a language model: nothing is seen of it without its server's metrics (--metrics)")
    if not evidence.traffic_per_s and not evidence.running:
        notes.append("no requests but our own came: what only load shows cannot be seen")
    return Diagnosis(tuple(findings), tuple(notes))
