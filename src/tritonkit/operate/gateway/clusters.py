"""The replicas behind a gateway: Envoy's clusters, with their health checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonkit.operate.gateway.spec import GatewayLimits

__all__ = ["CANDIDATE", "CHECKED_S", "EJECTED_S", "SHADOW", "Split", "Upstream", "clusters"]

CANDIDATE = "-candidate"
"""Suffix of the names of a candidate's clusters: `grpc-candidate`, `rest-candidate`."""
SHADOW = "shadow"
"""The cluster that gets copies of requests."""

CHECKED_S = 1.0
"""Seconds between health checks; two failures in a row take a replica out, one success brings it back."""
EJECTED_S = 5.0
"""Seconds for which a replica with failing connections is ejected, times the number of its ejections."""
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_BUFFER_BYTES = 1 << 20
_MOST_COPIES = 8
"""Largest number of copies in flight; more are dropped, so that comparing adds little load."""
_RETRIES = 32
"""Retries in flight that are always allowed."""


_NAMED = {
    "cluster_type": {
        "name": "envoy.cluster.dns",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
            # A server that starts gets requests immediately, and one that leaves gets none before it ends.
            "dns_refresh_rate": "1s",
            # Both families, one after the other, would be asked of each of resolv.conf's search domains.
            "dns_lookup_family": "V4_PREFERRED",
        },
    },
    # What has left the name answers health checks until its end, and wants no new requests.
    "ignore_health_on_host_removal": True,
}
"""Cluster type for host names: every address that DNS gives is a server."""
_OUTLIERS = {
    "interval": "1s",
    "consecutive_local_origin_failure": 5,
    "enforcing_consecutive_local_origin_failure": 100,
    "base_ejection_time": f"{EJECTED_S:g}s",
    "max_ejection_time": "60s",
    "max_ejection_percent": 50,
    # Only failures between here and the replica count: a model that fails would cost all callers half of the replicas.
    # A slow replica gets fewer requests anyway, because more of them are under way there.
    "split_external_local_origin_errors": True,
    "enforcing_consecutive_5xx": 0,
    "enforcing_consecutive_gateway_failure": 0,
    "enforcing_success_rate": 0,
    "enforcing_local_origin_success_rate": 0,
}
"""Ejection of replicas whose connections fail."""


@dataclass(frozen=True)
class Upstream:
    """Addresses of a server.

    Args:
        name: the server's name in logs and metrics.
        grpc: `host:port` of its gRPC service.
        rest: `host:port` of its REST proxy; empty: none.
        count: the number of servers behind its host name, each at an address of its own.
    """

    name: str
    grpc: str
    rest: str = ""
    count: int = 1


@dataclass(frozen=True)
class Split:
    """Models of which a part of the requests goes to a candidate for their next version.

    Args:
        models: the models' names in Triton.
        candidate: the server that has the next version.
        percent: the share of the requests that goes to the candidate. A request with the header `x-tritonkit-release`
            chooses its version itself.
        shadow: `host:port` that gets copies of requests over gRPC, and whose answers nobody sees; empty: none.
        shadow_percent: the share of the requests that is copied.
    """

    models: tuple[str, ...]
    candidate: Upstream
    percent: float = 0.0
    shadow: str = ""
    shadow_percent: float = 0.0


def clusters(replicas: Sequence[Upstream], limits: GatewayLimits, split: Split | None = None) -> list[dict[str, Any]]:
    """An `envoy.config.cluster.v3.Cluster` for gRPC and one for REST, even without a replica. A split adds those of its
    candidate and of the server that gets copies."""
    grpc = [replica.grpc for replica in replicas]
    rest = [replica.rest for replica in replicas if replica.rest]
    servers = sum(replica.count for replica in replicas)
    entries = [
        _cluster("grpc", [grpc], servers, limits, http2=True),
        _cluster("rest", [rest], servers, limits, http2=False),
    ]
    if split is None:
        return entries
    # Where the candidate is not healthy, the others answer.
    candidate, every = split.candidate, servers + split.candidate.count
    entries.append(_cluster(f"grpc{CANDIDATE}", [[candidate.grpc], grpc], every, limits, http2=True))
    if candidate.rest:
        groups = [[candidate.rest], rest]
        entries.append(_cluster(f"rest{CANDIDATE}", groups, every, limits, http2=False))
    return [*entries, *([_shadow(split.shadow)] if split.shadow else [])]


def _shadow(address: str) -> dict[str, Any]:
    """The cluster that gets copies; it has no health check, because nobody misses a lost copy."""
    return {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": SHADOW,
        "type": "STATIC",
        "connect_timeout": "1s",
        "per_connection_buffer_limit_bytes": _BUFFER_BYTES,
        "load_assignment": {"cluster_name": SHADOW, "endpoints": [{"lb_endpoints": [_endpoint(address)]}]},
        "typed_extension_protocol_options": {_OPTIONS: _protocol(http2=True)},
        "circuit_breakers": {"thresholds": [{"max_requests": _MOST_COPIES, "max_retries": 0}]},
    }


def _cluster(
    name: str, groups: Sequence[Sequence[str]], servers: int, limits: GatewayLimits, *, http2: bool
) -> dict[str, Any]:
    """A cluster with groups of addresses by priority: a group gets requests if no group before it is healthy."""
    addresses = [address for group in groups for address in group]
    return {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": name,
        **(_NAMED if any(_is_name(address) for address in addresses) else {"type": "STATIC"}),
        "connect_timeout": "1s",
        "lb_policy": "LEAST_REQUEST",
        # Of two drawn by chance, which may be the same one, a ninth of the requests would go to a slow replica of
        # three, however many wait there.
        "least_request_lb_config": {"choice_count": 4},
        "per_connection_buffer_limit_bytes": _BUFFER_BYTES,
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [
                {"priority": priority, "lb_endpoints": [_endpoint(address) for address in group]}
                for priority, group in enumerate(groups)
            ],
        },
        "typed_extension_protocol_options": {_OPTIONS: _protocol(http2=http2)},
        "health_checks": [_health(http2=http2)],
        # Calls on a connection to a replica that hangs end, to be made again elsewhere.
        "close_connections_on_host_health_failure": True,
        "common_lb_config": {
            # If all are down, an immediate error is better than waiting for them all.
            "healthy_panic_threshold": {"value": 0},
            # By default threads are told up to a second later who is healthy, and who is not any more.
            "update_merge_window": "0s",
        },
        "outlier_detection": _OUTLIERS,
        "circuit_breakers": {"thresholds": [_threshold(servers, limits)]},
    }


def _threshold(servers: int, limits: GatewayLimits) -> dict[str, Any]:
    """The limits of a cluster, for all of its servers together."""
    most = limits.requests_per_replica * max(1, servers)
    return {
        # HTTP/1.1 takes a connection for each request. With a limit on connections, too, requests would wait for one of
        # their own thread's, some of them for long, instead of being refused.
        "max_connections": 4 * most,
        "max_requests": most,
        "max_pending_requests": most,
        "retry_budget": {"budget_percent": {"value": limits.retry_percent}, "min_retry_concurrency": _RETRIES},
        "track_remaining": True,
    }


def _protocol(*, http2: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"@type": f"type.googleapis.com/{_OPTIONS}"}
    if not http2:
        # The proxy before a replica's HTTP closes idle connections itself.
        idle = {"common_http_protocol_options": {"idle_timeout": "60s"}}
        return options | idle | {"explicit_http_config": {"http_protocol_options": {}}}
    http2_options = {
        # A replica that is cut off sends nothing, not even that it is gone.
        "connection_keepalive": {"interval": "1s", "timeout": "1s"},
        "initial_stream_window_size": 1 << 20,
        "initial_connection_window_size": 16 << 20,
    }
    return options | {"explicit_http_config": {"http2_protocol_options": http2_options}}


def _health(*, http2: bool) -> dict[str, Any]:
    check: dict[str, Any] = {
        "timeout": f"{CHECKED_S:g}s",
        "interval": f"{CHECKED_S:g}s",
        "no_traffic_interval": f"{CHECKED_S:g}s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
        "always_log_health_check_failures": False,
    }
    if http2:
        return check | {"grpc_health_check": {}}
    # The proxy before a replica's HTTP knows this machine's names alone.
    return check | {"http_health_check": {"host": "127.0.0.1", "path": "/v2/health/ready"}}


def _endpoint(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    place = {"address": host.strip("[]"), "port_value": int(port)}
    return {"endpoint": {"address": {"socket_address": place}}}


def _is_name(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    return not (":" in host or host.replace(".", "").isdigit())
