"""Envoy's bootstrap of a gateway: its listener, and the files of everything that changes while it runs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.operate.gateway.filters import JWKS_CLUSTER, http_filters, jwks_address
from tritonkit.operate.gateway.logs import RELEASE_LOG, STRANGERS_RATE, audit_logs, release_log, statistics
from tritonkit.operate.gateway.overload import BUFFER_BYTES, memory_allocator, overload_manager
from tritonkit.operate.gateway.replies import MOST_HEADERS, replies
from tritonkit.operate.gateway.shared_limits import limiter_cluster
from tritonkit.operate.gateway.spec import GatewaySpec
from tritonkit.serve.core.edge import no_trust

__all__ = ["CLUSTERS", "ROUTES", "SECRETS", "Places", "bootstrap", "secrets"]

ROUTES, CLUSTERS, SECRETS = "routes.json", "clusters.json", "secrets.json"
"""Files that Envoy watches; each is replaced whole."""

_MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ADMIN = "admin"
_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3"


@dataclass(frozen=True)
class Places:
    """Paths of a gateway's files, and its addresses for operators.

    Args:
        folder: the gateway's folder, with its spec and the files that the spec names.
        rendered: the folder of ROUTES and SECRETS.
        clusters: the file of the replicas.
        audit: the audit log, with the log of unknown callers next to it; None: standard output.
        port: the port to listen on.
        metrics: `host:port` of the metrics for Prometheus; empty: none.
        admin: the socket of Envoy's own interface. It needs no key, so its folder must be its owner's alone. A relative
            path is relative to Envoy's working directory.
        releases: whether requests that a release judges are logged, in the folder of `clusters`.
    """

    folder: Path
    rendered: Path
    clusters: Path
    audit: Path | None
    port: int
    metrics: str = ""
    admin: str = "admin.sock"
    releases: bool = False


def bootstrap(spec: GatewaySpec, places: Places) -> dict[str, Any]:
    """An `envoy.config.bootstrap.v3.Bootstrap`.

    Raises:
        ValueError: the spec's host is not an address.
    """
    limits = spec.limits
    return {
        "node": {"id": "gateway", "cluster": "tritonkit"},
        "admin": {"address": {"pipe": {"path": places.admin, "mode": 0o600}}},
        "static_resources": {
            "listeners": [_listener(spec, places), *([_metrics(places.metrics)] if places.metrics else [])],
            "clusters": [
                _cluster_of_admin(places.admin),
                *([_jwks(spec)] if spec.jwt and spec.jwt.jwks_url else []),
                *([limiter_cluster(limits.shared)] if limits.shared else []),
            ],
        },
        "dynamic_resources": {"cds_config": _watched(places.clusters)},
        "overload_manager": overload_manager(limits),
        "memory_allocator_manager": memory_allocator(limits),
        "stats_config": {
            # In milliseconds: a histogram whose buckets are as fine as targets of latency are.
            "histogram_bucket_settings": [{"match": {"prefix": "gateway.request_ms"}, "buckets": _BUCKETS}]
        },
        "layered_runtime": {
            "layers": [
                {
                    "name": "fixed",
                    "static_layer": {
                        "http": {"max_requests_per_io_cycle": 10},
                        "re2": {"max_program_size": {"error_level": 100_000}},
                    },
                }
            ]
        },
    }


def _listener(spec: GatewaySpec, places: Places) -> dict[str, Any]:
    """The listener for callers."""
    host = "127.0.0.1" if spec.host == "localhost" else spec.host.strip("[]")
    address = {"address": str(ipaddress.ip_address(host)), "port_value": places.port}
    limits = spec.limits
    return {
        "name": "gateway",
        "address": {"socket_address": address},
        "enable_reuse_port": False,
        "connection_balance_config": {"exact_balance": {}},
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "per_connection_buffer_high_watermark_timeout": f"{limits.unread_s:.3f}s",
        "listener_filters_timeout": f"{limits.header_s:.3f}s",
        "socket_options": _KEEPALIVE,
        "filter_chains": [
            {
                "transport_socket_connect_timeout": f"{limits.header_s:.3f}s",
                "transport_socket": {"name": "tls", "typed_config": _tls(spec, places)},
                "filters": [{"name": "http", "typed_config": _manager(spec, places)}],
            }
        ],
    }


_BUCKETS = [
    0.5,
    1,
    2,
    3,
    5,
    7.5,
    10,
    15,
    20,
    30,
    50,
    75,
    100,
    150,
    200,
    300,
    500,
    750,
    1000,
    2000,
    5000,
    10_000,
    60_000,
]
# A caller that is gone without a word is noticed after 60 s and three probes.
_KEEPALIVE = [
    {"level": 1, "name": 9, "int_value": 1, "state": "STATE_PREBIND", "description": "SO_KEEPALIVE"},
    {"level": 6, "name": 4, "int_value": 60, "state": "STATE_PREBIND", "description": "TCP_KEEPIDLE"},
    {"level": 6, "name": 5, "int_value": 10, "state": "STATE_PREBIND", "description": "TCP_KEEPINTVL"},
    {"level": 6, "name": 6, "int_value": 3, "state": "STATE_PREBIND", "description": "TCP_KEEPCNT"},
]


def secrets(spec: GatewaySpec, places: Places) -> dict[str, Any]:
    """The content of SECRETS: paths of the certificate and its key, which Envoy reads again when they change."""
    tls, folder = spec.tls, places.folder
    kind = f"{_TLS}.Secret"
    resources: list[dict[str, Any]] = [
        {
            "@type": kind,
            "name": "server",
            "tls_certificate": {
                "certificate_chain": {"filename": str(folder / tls.certificate)},
                "private_key": {"filename": str(folder / tls.key)},
                "watched_directory": {"path": str(_moved_in(folder, tls.certificate))},
            },
        }
    ]
    if tls.client_ca:
        resources.append(
            {
                "@type": kind,
                "name": "callers",
                "validation_context": {
                    "trusted_ca": {"filename": str(folder / tls.client_ca)},
                    "watched_directory": {"path": str(_moved_in(folder, tls.client_ca))},
                },
            }
        )
    return {"resources": resources}


def _moved_in(folder: Path, file: str) -> Path:
    """The folder to watch for a file's changes, which come as moves. A volume of Kubernetes changes as a whole, by one
    link at its top."""
    return folder if (folder / "..data").is_symlink() else (folder / file).parent


def _tls(spec: GatewaySpec, places: Places) -> dict[str, Any]:
    source = _watched(places.rendered / SECRETS)
    common: dict[str, Any] = {
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_certificate_sds_secret_configs": [{"name": "server", "sds_config": source}],
    }
    if spec.tls.client_ca:
        common["validation_context_sds_secret_config"] = {"name": "callers", "sds_config": source}
    return {
        "@type": f"{_TLS}.DownstreamTlsContext",
        "common_tls_context": common,
        "require_client_certificate": spec.tls.client_ca is not None,
    }


def _manager(spec: GatewaySpec, places: Places) -> dict[str, Any]:
    limits = spec.limits
    logs = [
        *audit_logs(places.audit, _watched(places.rendered / STRANGERS_RATE)),
        *(
            [release_log(str(places.clusters.with_name(RELEASE_LOG)), tokens=spec.jwt is not None)]
            if places.releases
            else []
        ),
        statistics(tokens=spec.jwt is not None),
    ]
    return {
        "@type": _MANAGER,
        "stat_prefix": "gateway",
        "codec_type": "AUTO",
        "server_name": "tritonkit",
        "drain_timeout": "1s",
        **no_trust(),
        "generate_request_id": True,
        "always_set_request_id_in_response": True,
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "REJECT_REQUEST",
        "max_request_headers_kb": limits.header_kib,
        "request_headers_timeout": f"{limits.header_s:.3f}s",
        "request_timeout": f"{limits.timeout_s:.3f}s",
        "stream_idle_timeout": f"{limits.idle_s:.3f}s",
        "stream_flush_timeout": f"{limits.unread_s:.3f}s",
        "common_http_protocol_options": {
            "idle_timeout": f"{limits.idle_s:.3f}s",
            "max_headers_count": MOST_HEADERS,
            "headers_with_underscores_action": "REJECT_REQUEST",
        },
        "http2_protocol_options": {
            "max_concurrent_streams": limits.streams,
            "initial_stream_window_size": 1 << 20,
            "initial_connection_window_size": 4 << 20,
        },
        "local_reply_config": replies(limits),
        "access_log": logs,
        "http_filters": http_filters(spec, places.folder),
        "rds": {"route_config_name": "gateway", "config_source": _watched(places.rendered / ROUTES)},
    }


def _jwks(spec: GatewaySpec) -> dict[str, Any]:
    assert spec.jwt is not None  # noqa: S101
    host, port, secure = jwks_address(spec.jwt)
    cluster: dict[str, Any] = {
        "name": JWKS_CLUSTER,
        "type": "STRICT_DNS",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": JWKS_CLUSTER,
            "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": host, "port_value": port}}}}]}
            ],
        },
    }
    if secure:
        cluster["transport_socket"] = {
            "name": "tls",
            "typed_config": {
                "@type": f"{_TLS}.UpstreamTlsContext",
                "sni": host,
                "common_tls_context": {
                    "validation_context": {
                        "trusted_ca": {"filename": "/etc/ssl/certs/ca-certificates.crt"},
                        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": host}}],
                    }
                },
            },
        }
    return cluster


def _watched(file: Path) -> dict[str, Any]:
    return {
        "path_config_source": {"path": str(file), "watched_directory": {"path": str(file.parent)}},
        "resource_api_version": "V3",
    }


def _metrics(place: str) -> dict[str, Any]:
    """A listener that serves Envoy's metrics and nothing else of its interface."""
    host, _, port = place.rpartition(":")
    only = {
        "match": {
            "path": "/metrics",
            "headers": [
                {"name": ":method", "string_match": {"exact": "GET"}},
                # Without a query, which Envoy's interface would obey.
                {"name": ":path", "string_match": {"exact": "/metrics"}},
            ],
        },
        "route": {"cluster": _ADMIN, "prefix_rewrite": "/stats/prometheus"},
    }
    return {
        "name": "metrics",
        "address": {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}},
        "enable_reuse_port": False,
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "http",
                        "typed_config": {
                            "@type": _MANAGER,
                            "stat_prefix": "metrics",
                            "codec_type": "HTTP1",
                            **no_trust(),
                            "request_headers_timeout": "10s",
                            "request_timeout": "10s",
                            "http_filters": [
                                {
                                    "name": "envoy.filters.http.router",
                                    "typed_config": {
                                        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                                    },
                                }
                            ],
                            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [only]}]},
                        },
                    }
                ]
            }
        ],
    }


def _cluster_of_admin(path: str) -> dict[str, Any]:
    return {
        "name": _ADMIN,
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": _ADMIN,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": path}}}}]}],
        },
    }
