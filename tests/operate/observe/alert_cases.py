"""Series under which each alert fires, and others, close by, under which it does not.

Values as promtool writes them, one a minute: `0+60x10` begins at 0 and gains 60 ten times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CASES", "Case"]

_TRITON = 'job="triton",instance="a:8002"'
_MODEL = f'{_TRITON},model="net",version="1"'
_WELL = f"nv_inference_request_success{{{_MODEL}}}"
_FAILED = f'nv_inference_request_failure{{{_MODEL},reason="BACKEND"}}'
_CANCELED = f'nv_inference_request_failure{{{_MODEL},reason="CANCELED"}}'
_PENDING = f"nv_inference_pending_request_count{{{_MODEL}}}"
_INFERENCES = f"nv_inference_count{{{_MODEL}}}"
_RUNS = f"nv_inference_exec_count{{{_MODEL}}}"
_LIMIT = f'tritonkit_max_batch_size{{{_TRITON},model="net"}}'
_UP = f"up{{{_TRITON}}}"
_OTHER_UP = _UP.replace("a:8002", "b:8002")
_STUB = f'tritonkit_stub_up{{{_TRITON},model="net"}}'
_DEATHS = f'tritonkit_stub_deaths_total{{{_TRITON},model="net"}}'
_HITS = f"nv_cache_num_hits_per_model{{{_MODEL}}}"
_MISSES = f"nv_cache_num_misses_per_model{{{_MODEL}}}"
_GPU = f'{_TRITON},gpu_uuid="GPU-1"'
_GPU_USE, _GPU_USED, _GPU_TOTAL = (
    f"nv_gpu_{name}{{{_GPU}}}" for name in ("utilization", "memory_used_bytes", "memory_total_bytes")
)
_GATEWAY = 'job="gateway",instance="g:9901"'
_GATEWAY_UP = f"up{{{_GATEWAY}}}"
_CLUSTER = f'{_GATEWAY},envoy_cluster_name="triton"'
_HEALTHY = f"envoy_cluster_membership_healthy{{{_CLUSTER}}}"
_MEMBERS = f"envoy_cluster_membership_total{{{_CLUSTER}}}"
_UNWRITTEN = f"envoy_filesystem_write_failed{{{_GATEWAY}}}"
_UNDECIDED = f'envoy_cluster_ratelimit_failure_mode_allowed{{{_GATEWAY},envoy_cluster_name="grpc"}}'
_DAYS = f"envoy_server_days_until_first_cert_expiring{{{_GATEWAY}}}"

_OF_MODEL = {"model": "net"}
_OF_BOTH = {"model": "net", "instance": "a:8002"}
_OF_REPLICA = {"job": "triton", "instance": "a:8002"}
_OF_GATEWAY = {"job": "gateway", "instance": "g:9901"}


@dataclass(frozen=True)
class Case:
    """Series, and the minutes after which the alert fires with these labels and its severity; None if it does not."""

    alert: str
    why: str
    series: Mapping[str, str]
    minutes: int
    labels: Mapping[str, str] | None = None


def _code(code: str, status: str = "-") -> str:
    return f'envoy_gateway_requests{{{_GATEWAY},model="net",key="k",code="{code}",grpc_status="{status}"}}'


def _space(name: str, free: str) -> dict[str, str]:
    return {f"tritonkit_{name}_free_bytes{{{_TRITON}}}": free, f"tritonkit_{name}_size_bytes{{{_TRITON}}}": "100+0x60"}


def _waits(inferences: int, runs: int, pending: int, limit: int) -> dict[str, str]:
    return {
        _INFERENCES: f"0+{inferences}x40",
        _RUNS: f"0+{runs}x40",
        _PENDING: f"{pending}+0x40",
        _LIMIT: f"{limit}+0x40",
    }


def _llm(name: str, **labels: str) -> str:
    more = "".join(f',{label}="{value}"' for label, value in labels.items())
    return f"tritonkit_llm_{name}{{{_MODEL}{more}}}"


def _first_tokens(late: int) -> dict[str, str]:
    """Series in which `late` of a hundred answers a minute begin later than 2.5 s."""
    return {
        _llm("first_token_seconds_bucket", le="2.5"): f"0+{100 - late}x40",
        _llm("first_token_seconds_bucket", le="+Inf"): "0+100x40",
        _llm("first_token_seconds_count"): "0+100x40",
    }


def _sequences(cache: str, waiting: int = 0, stalled: int = 0) -> dict[str, str]:
    return {_llm("cache_usage"): cache, _llm("waiting"): f"{waiting}+0x40", _llm("stalled"): f"{stalled}+0x40"}


def _ended(refused: int) -> dict[str, str]:
    return {
        _llm("requests_total", outcome="stop"): "0+100x40",
        _llm("requests_total", outcome="invalid"): "0+50x40",
        _llm("requests_total", outcome="refused"): f"0+{refused}x40",
    }


CASES = (
    Case(
        "GpuIdleWhileRequestsWait",
        "128 callers of a network that rebuilds its plans use 4 % of an H100",
        {_PENDING: "100+0x40", _GPU_USE: "0.04+0x40"},
        20,
        {"instance": "a:8002"},
    ),
    Case("GpuIdleWhileRequestsWait", "the GPU works", {_PENDING: "100+0x40", _GPU_USE: "0.76+0x40"}, 20),
    Case("GpuIdleWhileRequestsWait", "nobody waits", {_PENDING: "1+0x40", _GPU_USE: "0.04+0x40"}, 20),
    Case("GpuIdleWhileRequestsWait", "there is no GPU", {_PENDING: "100+0x40"}, 20),
    Case(
        "GpuMemoryNearlyFull",
        "79 of 80 GB",
        {_GPU_USED: "79+0x40", _GPU_TOTAL: "80+0x40"},
        20,
        {"job": "triton", "instance": "a:8002", "gpu_uuid": "GPU-1"},
    ),
    Case("GpuMemoryNearlyFull", "an engine's share", {_GPU_USED: "73+0x40", _GPU_TOTAL: "80+0x40"}, 20),
    Case("GpuMemoryNearlyFull", "not read yet", {_GPU_USED: "0+0x40", _GPU_TOTAL: "0+0x40"}, 20),
    Case(
        "SloBurnFast",
        "2 % at the gateway for an hour",
        {_code("OK"): "0+5880x70", _code("UNAVAILABLE"): "0+120x70"},
        65,
        _OF_MODEL,
    ),
    Case("SloBurnFast", "2 % over HTTP", {_code("200"): "0+5880x70", _code("503"): "0+120x70"}, 65, _OF_MODEL),
    Case(
        "SloBurnFast",
        "2 % over gRPC, whose status is a label of its own",
        {_code("200", "OK"): "0+5880x70", _code("200", "UNAVAILABLE"): "0+120x70"},
        65,
        _OF_MODEL,
    ),
    Case(
        "SloBurnFast",
        "1 %, which has both labels",
        {_code("200"): "0+5940x70", _code("503", "UNAVAILABLE"): "0+60x70"},
        65,
    ),
    Case(
        "SloBurnFast",
        "2 % in Triton, where there is no gateway",
        {_WELL: "0+5880x70", _FAILED: "0+120x70"},
        65,
        _OF_MODEL,
    ),
    Case("SloBurnFast", "1 %", {_code("OK"): "0+5940x70", _code("UNAVAILABLE"): "0+60x70"}, 65),
    Case("SloBurnFast", "it is over", {_code("OK"): "0+5880x70", _code("INTERNAL"): "0+600x50 30000+0x20"}, 65),
    Case("SloBurnFast", "a caller's mistakes", {_code("OK"): "0+5880x70", _code("INVALID_ARGUMENT"): "0+900x70"}, 65),
    Case(
        "SloBurnFast",
        "the gateway tried again, with success",
        {_code("OK"): "0+6000x70", _WELL: "0+5880x70", _FAILED: "0+120x70"},
        65,
    ),
    Case("SloBurnFast", "callers who gave up", {_WELL: "0+5880x70", _CANCELED: "0+900x70"}, 65),
    Case(
        "SloBurnSlow", "1 % for six hours", {_code("OK"): "0+5940x420", _code("INTERNAL"): "0+60x420"}, 400, _OF_MODEL
    ),
    Case("SloBurnSlow", "0.5 %", {_code("OK"): "0+5970x420", _code("INTERNAL"): "0+30x420"}, 400),
    Case("ErrorsAboveTarget", "0.2 %", {_WELL: "0+5988x30", _FAILED: "0+12x30"}, 25, _OF_MODEL),
    Case("ErrorsAboveTarget", "0.05 %", {_WELL: "0+5997x30", _FAILED: "0+3x30"}, 25),
    Case("ErrorsAboveTarget", "no request at all", {_WELL: "5+0x30", _FAILED: "5+0x30"}, 25),
    Case("ReplicaDown", "no answer for minutes", {_UP: "1+0x5 0+0x10"}, 10, _OF_REPLICA),
    Case("ReplicaDown", "one scrape failed", {_UP: "1+0x5 0 1+0x10"}, 6),
    Case("ReplicaGone", "one of two", {_UP: "1+0x20", _OTHER_UP: "1+0x5 stale"}, 10, {}),
    Case("ReplicaGone", "it came back", {_UP: "1+0x20", _OTHER_UP: "1+0x5 stale 1+0x14"}, 10),
    Case("ReplicaGone", "it is a target and down", {_UP: "1+0x20", _OTHER_UP: "1+0x5 0+0x15"}, 10),
    Case(
        "GatewayReplicaOut",
        "one of two",
        {_HEALTHY: "1+0x10", _MEMBERS: "2+0x10"},
        5,
        {**_OF_GATEWAY, "envoy_cluster_name": "triton"},
    ),
    Case("GatewayReplicaOut", "both are well", {_HEALTHY: "2+0x10", _MEMBERS: "2+0x10"}, 5),
    Case(
        "GatewayHasNoReplica",
        "none of two",
        {_HEALTHY: "2+0x3 0+0x10", _MEMBERS: "2+0x13"},
        8,
        {**_OF_GATEWAY, "envoy_cluster_name": "triton"},
    ),
    Case(
        "GatewayHasNoReplica",
        "their names are gone",
        {_HEALTHY: "2+0x3 0+0x10", _MEMBERS: "2+0x3 0+0x10"},
        8,
        {**_OF_GATEWAY, "envoy_cluster_name": "triton"},
    ),
    Case("GatewayHasNoReplica", "one of two", {_HEALTHY: "1+0x10", _MEMBERS: "2+0x10"}, 8),
    Case("GatewayHasNoReplica", "a cluster without members", {_HEALTHY: "0+0x10", _MEMBERS: "0+0x10"}, 8),
    Case("GatewayDown", "no answer for minutes", {_GATEWAY_UP: "1+0x5 0+0x10"}, 10, _OF_GATEWAY),
    Case("GatewayDown", "one scrape failed", {_GATEWAY_UP: "1+0x5 0 1+0x10"}, 6),
    Case("AuditLogUnwritten", "some are lost", {_UNWRITTEN: "0+0x5 0+3x20"}, 15, _OF_GATEWAY),
    Case("AuditLogUnwritten", "none is any more", {_UNWRITTEN: "0+3x5 15+0x20"}, 20),
    Case("RatesNotShared", "some pass", {_UNDECIDED: "0+0x5 0+30x20"}, 15, {"instance": "g:9901"}),
    Case("RatesNotShared", "none does any more", {_UNDECIDED: "0+30x5 150+0x20"}, 20),
    Case("ModelStalled", "they wait and none is answered", {_PENDING: "5+0x20", _WELL: "100+0x20"}, 10, _OF_BOTH),
    Case("ModelStalled", "it answers", {_PENDING: "5+0x20", _WELL: "100+1x20"}, 10),
    Case("ModelStalled", "nobody asks", {_PENDING: "0+0x20", _WELL: "100+0x20"}, 10),
    Case("StubDead", "it does not come back", {_STUB: "1+0x5 0+0x10"}, 10, _OF_BOTH),
    Case("StubDead", "it came back", {_STUB: "1+0x5 0 1+0x10"}, 8),
    Case("StubKeepsDying", "three times", {_DEATHS: "0+0x5 1+0x5 2+0x5 3+0x20"}, 25, _OF_BOTH),
    Case("StubKeepsDying", "once", {_DEATHS: "0+0x15 1+0x25"}, 30),
    Case("QueueGrowing", "six more each minute", {_PENDING: "0+6x30"}, 20, _OF_BOTH),
    Case("QueueGrowing", "long, and steady", {_PENDING: "40+0x30"}, 20),
    Case("QueueGrowing", "short", {_PENDING: "0+0x15 1 2 3 4 5 6"}, 20),
    Case("BatchOfOneUnderLoad", "they wait and run alone", _waits(600, 600, 4, 8), 25, _OF_BOTH),
    Case("BatchOfOneUnderLoad", "batches of four", _waits(2400, 600, 4, 8), 25),
    Case("BatchOfOneUnderLoad", "nothing waits", _waits(600, 600, 0, 8), 25),
    Case("BatchOfOneUnderLoad", "a model without a batch axis", _waits(600, 600, 4, 0), 25),
    Case("CacheDown", "hits, and then none", {_HITS: "0+600x70 42000+0x40", _MISSES: "0+60x110"}, 95, _OF_MODEL),
    Case("CacheDown", "hits all the while", {_HITS: "0+600x110", _MISSES: "0+60x110"}, 95),
    Case("CacheDown", "never any", {_HITS: "0+0x110", _MISSES: "0+60x110"}, 95),
    Case("CacheDown", "nobody asks any more", {_HITS: "0+600x70 42000+0x40", _MISSES: "0+60x70 4200+0x40"}, 95),
    Case("RequestsRefused", "one in sixteen", _ended(10), 15, _OF_BOTH),
    Case("RequestsRefused", "none; callers' mistakes are not counted", _ended(0), 15),
    Case("RequestsRefused", "one in 151", _ended(1), 15),
    Case("FirstTokenSlow", "one in ten begins later", _first_tokens(10), 25, _OF_BOTH),
    Case("FirstTokenSlow", "one in fifty does", _first_tokens(2), 25),
    Case("FirstTokenSlow", "nobody asks", dict.fromkeys(_first_tokens(10), "100+0x40"), 25),
    Case("KvCacheFull", "sequences are left out", _sequences("0.97+0x40", stalled=2), 25, _OF_BOTH),
    Case("KvCacheFull", "requests wait for a place", _sequences("0.97+0x40", waiting=3), 25, _OF_BOTH),
    Case("KvCacheFull", "nobody waits", _sequences("0.97+0x40"), 25),
    Case("KvCacheFull", "there is room", _sequences("0.5+0x40", waiting=3, stalled=2), 25),
    Case("KvCacheFull", "for a few minutes", _sequences("0.97+0x4 0.3+0x36", waiting=3), 25),
    Case("SharedMemoryNearlyFull", "5 % are free", _space("shared_memory", "5+0x60"), 10, _OF_REPLICA),
    Case("SharedMemoryNearlyFull", "20 % are", _space("shared_memory", "20+0x60"), 10),
    Case("DiskNearlyFull", "5 % are free", _space("disk", "5+0x60"), 20, _OF_REPLICA),
    Case("DiskNearlyFull", "for a few minutes", _space("disk", "5+0x9 50+0x50"), 20),
    Case("CertificateEnds", "ten days", {_DAYS: "10+0x90"}, 70, _OF_GATEWAY),
    Case("CertificateEnds", "twenty days", {_DAYS: "20+0x90"}, 70),
)
