"""All alerts, in the order of how much callers notice."""

from __future__ import annotations

from tritonkit import metrics as m
from tritonkit.operate.observe.alert import Alert, Pace, Severity
from tritonkit.operate.observe.promql import gateway, per_s, ratio, triton
from tritonkit.operate.observe.rules import error_record
from tritonkit.operate.observe.slo import (
    BUDGET,
    FAST,
    FAST_WINDOWS_S,
    FIRST_TOKEN_LATE,
    FIRST_TOKEN_S,
    SLOW,
    SLOW_WINDOWS_S,
    TARGET_TEXT,
)

__all__ = ["ALERTS"]

_BY = "instance, model"
_CERTIFICATE_DAYS = 14
_NEARLY_FULL = 0.1
_LANGUAGE_MODEL = "The language model {{ $labels.model }} on {{ $labels.instance }}"
_CACHE_FULL = 0.9
_REFUSED = 0.01
_GPU_IDLE = 0.2
"""Share of time in use. A ResNet-50 that rebuilt its plans used 4 % of an H100 while 128 callers waited."""
_GPU_FULL = 0.97
"""Share of memory; engines of language models take up to 90 % on purpose."""
_DIAGNOSE = "tritonkit diagnose --address REPLICA:8001 --metrics {{ $labels.instance }}"
_DIAGNOSE_MODEL = "tritonkit diagnose {{ $labels.model }} --address REPLICA:8001 --metrics {{ $labels.instance }}"
_DIAGNOSE_ALL = "tritonkit diagnose {{ $labels.model }} --address REPLICA:8001,REPLICA:8001"


def _burn(times: float, windows_s: tuple[float, float]) -> str:
    """Condition that a long and a short window both use up the budget `times` too fast."""
    return " and ".join(f"{error_record(window_s)} > {times * BUDGET:g}" for window_s in windows_s)


def _over(function: str, metric: str, window: str) -> str:
    """A function of a gauge over time, added up by model and replica."""
    return f"sum by ({_BY}) ({function}({triton(metric)}[{window}]))"


def _queue(pace: Pace) -> str:
    window = pace(300)
    growing = f"{_over('deriv', m.PENDING, window)} > 0.02"
    return f"{growing} and {_over('avg_over_time', m.PENDING, window)} > 8"


def _batch_of_one(pace: Pace) -> str:
    window = pace(300)
    batch = ratio(per_s(triton(m.INFERENCES), _BY, window), per_s(triton(m.EXECUTIONS), _BY, window))
    batches = f"max by ({_BY}) ({triton(m.MAX_BATCH_SIZE)}) > 1"
    waits = f"{_over('avg_over_time', m.PENDING, window)} > 1"
    return f"{batch} < 1.1 and {waits} and {batches}"


def _stalled(pace: Pace) -> str:
    window = pace(120)
    ended = f"{per_s(triton(m.REQUESTS_OK), _BY, window)} == 0"
    return f"{_over('min_over_time', m.PENDING, window)} > 0 and {ended}"


def _cache_down(pace: Pace) -> str:
    """Condition that a cache had hits an hour ago, gets requests, and has no hits."""
    hits, window = triton(m.CACHE_HITS), pace(600)
    lookups = f"{per_s(triton(m.CACHE_MISSES), 'model', window)} > 0.1"
    before = f"sum by (model) (rate({hits}[{pace(3600)}] offset {window})) > 0.1"
    return f"{per_s(hits, 'model', window)} == 0 and {lookups} and {before}"


def _gone(pace: Pace) -> str:
    """Condition that a replica is gone, for replicas found by name: the target has vanished, so no `up` is 0."""
    servers = f"count({triton(m.UP)})"
    return f"{servers} < max_over_time({servers}[{pace(3600)}:{pace(60)}])"


def _none(pace: Pace) -> str:
    """Condition that no replica is left, for replicas found by name, which are not members once gone."""
    had = f"max_over_time({gateway(m.GATEWAY_MEMBERS)}[{pace(86400)}]) > 0"
    return f"{gateway(m.GATEWAY_HEALTHY)} == 0 and {had}"


def _first_token_slow(pace: Pace) -> str:
    window = pace(300)
    soon = triton(f"{m.LLM_FIRST_S}_bucket", f'le="{FIRST_TOKEN_S}"')
    began = per_s(triton(f"{m.LLM_FIRST_S}_count"), _BY, window)
    return f"1 - {ratio(per_s(soon, _BY, window), began)} > {FIRST_TOKEN_LATE:g}"


def _kv_cache_full(pace: Pace) -> str:
    """Condition that the cache is full on average, and that sequences are left out of steps or wait on average."""
    window = pace(300)
    full = f"{_over('avg_over_time', m.LLM_CACHE, window)} > {_CACHE_FULL:g}"
    held = " + ".join(_over("avg_over_time", metric, window) for metric in (m.LLM_STALLED, m.LLM_WAITING))
    return f"{full} and ({held} > 0.5)"


def _requests_refused(pace: Pace) -> str:
    window = pace(300)
    refused = per_s(triton(m.LLM_REQUESTS, m.LLM_REFUSED), _BY, window)
    return f"{ratio(refused, per_s(triton(m.LLM_REQUESTS), _BY, window))} > {_REFUSED:g}"


def _gpu_idle(pace: Pace) -> str:
    """Condition that requests wait on a replica all of whose GPUs hardly work."""
    window = pace(300)
    waiting = f"sum by (instance) (avg_over_time({triton(m.PENDING)}[{window}])) > 8"
    return f"{waiting} and max by (instance) (avg_over_time({triton(m.GPU_SHARE)}[{window}])) < {_GPU_IDLE:g}"


def _gpu_memory_full(_: Pace) -> str:
    return f"{triton(m.GPU_MEMORY_USED)} > {_GPU_FULL:g} * {triton(m.GPU_MEMORY_TOTAL)} > 0"


def _full(free: str, size: str) -> str:
    return f"{triton(free)} / {triton(size)} < {_NEARLY_FULL:g}"


ALERTS: tuple[Alert, ...] = (
    Alert(
        "SloBurnFast",
        Severity.page,
        lambda _: _burn(FAST, FAST_WINDOWS_S),
        120,
        "{{ $labels.model }} fails requests at a rate that uses 2 % of a month's error budget within an hour",
        "A replica, a step or a new version is broken",
        _DIAGNOSE_ALL,
    ),
    Alert(
        "SloBurnSlow",
        Severity.ticket,
        lambda _: _burn(SLOW, SLOW_WINDOWS_S),
        900,
        "{{ $labels.model }} fails requests at a rate that uses 5 % of a month's error budget within six hours",
        "Some requests, callers or replicas fail and others do not",
        _DIAGNOSE_ALL,
    ),
    Alert(
        "ErrorsAboveTarget",
        Severity.ticket,
        lambda _: f"{error_record(300)} > {BUDGET:g}",
        600,
        "{{ $labels.model }} fails " + f"more than {100 * BUDGET:g} % of its requests (target: {TARGET_TEXT})",
        "The panel of failures by reason says whether it is the queue, the model or a caller",
        _DIAGNOSE_ALL,
    ),
    Alert(
        "ReplicaDown",
        Severity.page,
        lambda _: f"{triton(m.UP)} == 0",
        60,
        "Prometheus cannot scrape replica {{ $labels.instance }}",
        "The server ended, its machine is down, or its port is closed to Prometheus",
        "tritonkit doctor, and the server's log",
    ),
    Alert(
        "ReplicaGone",
        Severity.ticket,
        _gone,
        120,
        "Prometheus finds fewer replicas than within the last hour",
        "A container ended, and its address left the name; or the fleet was made smaller on purpose",
        "docker compose ps --all triton, and the log of the one that ended",
    ),
    Alert(
        "GatewayReplicaOut",
        Severity.ticket,
        lambda _: f"{gateway(m.GATEWAY_HEALTHY)} < {gateway(m.GATEWAY_MEMBERS)}",
        60,
        "The gateway sends no requests to a replica of {{ $labels.envoy_cluster_name }}",
        "It fails its health checks, or five connections to it failed in a row; errors of a model do not count",
        "tritonkit diagnose --address REPLICA:8001,REPLICA:8001",
    ),
    Alert(
        "GatewayHasNoReplica",
        Severity.page,
        _none,
        60,
        "No replica of {{ $labels.envoy_cluster_name }} is healthy: every request is refused",
        "All replicas fail their health checks, or the network to them is broken",
        "tritonkit diagnose --address REPLICA:8001,REPLICA:8001",
    ),
    Alert(
        "GatewayDown",
        Severity.page,
        lambda _: f"{gateway(m.UP)} == 0",
        60,
        "Prometheus cannot scrape the gateway {{ $labels.instance }}: callers may reach no model",
        "Envoy ended and was not started again, its machine is down, or its port is closed to Prometheus",
        "tritonkit gateway check, and the gateway's log",
    ),
    Alert(
        "RatesNotShared",
        Severity.ticket,
        lambda pace: f"{per_s(gateway(m.GATEWAY_UNDECIDED), 'instance', pace(300))} > 0",
        60,
        "Requests pass the gateway {{ $labels.instance }} without a decision on their key's shared rate",
        "Redis is down or slow, its password has changed, or the limiter has ended: each gateway counts alone",
        "tritonkit gateway check, and the limiter's log",
    ),
    Alert(
        "AuditLogUnwritten",
        Severity.page,
        lambda pace: f"increase({gateway(m.GATEWAY_UNWRITTEN)}[{pace(300)}]) > 0",
        0,
        "The gateway {{ $labels.instance }} answers requests whose lines in the audit log are lost",
        "Its disk is full, read-only or failing",
        "df -h on the gateway's machine",
    ),
    Alert(
        "ModelStalled",
        Severity.page,
        _stalled,
        60,
        "Requests for {{ $labels.model }} on {{ $labels.instance }} wait, and none is answered",
        "All its instances hang, or one of its Python processes has died",
        _DIAGNOSE_MODEL,
    ),
    Alert(
        "StubDead",
        Severity.page,
        lambda _: f"min by ({_BY}) ({triton(m.STUB_UP)}) == 0",
        60,
        "{{ $labels.model }} has lost a Python process on {{ $labels.instance }}, and Triton reports it as ready",
        "It ran out of memory or shared memory, or a library in it crashed, and reloading the model did not help",
        _DIAGNOSE_MODEL,
    ),
    Alert(
        "StubKeepsDying",
        Severity.ticket,
        lambda pace: f"sum by ({_BY}) (increase({triton(m.STUB_DEATHS)}[{pace(1800)}])) > 1.5",
        0,
        "Python processes of {{ $labels.model }} on {{ $labels.instance }} died more than once in half an hour",
        "A certain request kills it, or it has too little memory",
        _DIAGNOSE_MODEL,
    ),
    Alert(
        "QueueGrowing",
        Severity.page,
        _queue,
        300,
        "The queue of {{ $labels.model }} on {{ $labels.instance }} keeps growing",
        "More traffic than its instances can handle, or runs that take longer than before",
        _DIAGNOSE_MODEL,
    ),
    Alert(
        "BatchOfOneUnderLoad",
        Severity.ticket,
        _batch_of_one,
        600,
        "Requests for {{ $labels.model }} on {{ $labels.instance }} wait, and each runs alone",
        "No dynamic batching, or inputs with different shapes",
        _DIAGNOSE_MODEL,
    ),
    Alert(
        "CacheDown",
        Severity.ticket,
        _cache_down,
        300,
        "The response cache of {{ $labels.model }} has no hits any more",
        "The cache's server is down or was emptied, or requests have changed",
        "tritonkit diagnose {{ $labels.model }} --address REPLICA:8001",
    ),
    Alert(
        "RequestsRefused",
        Severity.page,
        _requests_refused,
        300,
        f"{_LANGUAGE_MODEL} refuses more than {100 * _REFUSED:g} % of its requests",
        "The waiting list is full (max_waiting): more traffic than it can handle, or longer answers than before",
        _DIAGNOSE_MODEL,
    ),
    Alert(
        "FirstTokenSlow",
        Severity.ticket,
        _first_token_slow,
        600,
        f"{_LANGUAGE_MODEL} begins more than {100 * FIRST_TOKEN_LATE:g} % of answers later than {FIRST_TOKEN_S:g} s",
        "Requests wait for a slot or for the cache, or prompts are longer than before",
        _DIAGNOSE_MODEL,
    ),
    Alert(
        "KvCacheFull",
        Severity.ticket,
        _kv_cache_full,
        600,
        f"{_LANGUAGE_MODEL} has a full cache of keys and values, and sequences wait",
        "Longer prompts or answers, or more concurrent sequences, than fit in cache_mib",
        _DIAGNOSE_MODEL,
    ),
    Alert(
        "SharedMemoryNearlyFull",
        Severity.page,
        lambda _: _full(m.SHARED_MEMORY_FREE, m.SHARED_MEMORY_SIZE),
        300,
        "Less than a tenth of the shared memory of {{ $labels.instance }} is free",
        "Batches larger than planned, or regions of programs that have ended",
        _DIAGNOSE,
    ),
    Alert(
        "GpuIdleWhileRequestsWait",
        Severity.ticket,
        _gpu_idle,
        600,
        "Requests wait on {{ $labels.instance }}, and its GPU is hardly used",
        "Batches of changing sizes without a CUDA graph for each, copies, or a step before the network that is slow",
        _DIAGNOSE,
    ),
    Alert(
        "GpuMemoryNearlyFull",
        Severity.ticket,
        _gpu_memory_full,
        900,
        "A GPU of {{ $labels.instance }} has less than " + f"{100 * (1 - _GPU_FULL):.0f} % of its memory free",
        "More models or instances than it has room for, or another program; the next model may not load",
        _DIAGNOSE,
    ),
    Alert(
        "DiskNearlyFull",
        Severity.ticket,
        lambda _: _full(m.DISK_FREE, m.DISK_SIZE),
        900,
        "Less than a tenth of the disk with the model repository of {{ $labels.instance }} is free",
        "Old versions, the build's cache, or logs",
        "df -h, and du -sh .tritonkit model_repository",
    ),
    Alert(
        "CertificateEnds",
        Severity.ticket,
        lambda _: f"{gateway(m.GATEWAY_CERTIFICATE_DAYS)} < {_CERTIFICATE_DAYS}",
        3600,
        f"A certificate of the gateway expires in less than {_CERTIFICATE_DAYS} days",
        "It was not renewed, or the gateway has not read the new one",
        "openssl s_client -connect GATEWAY:PORT </dev/null | openssl x509 -noout -enddate",
    ),
)
"""All alerts; their names are unique."""
