"""Envoy's filter for its rate-limit protocol, with which gateways share rates."""

from __future__ import annotations

from typing import Any

from tritonkit.operate.gateway.spec import SharedLimits

__all__ = ["CLUSTER", "DESCRIPTOR", "METADATA", "SOCKET", "limiter_cluster", "rate_limit_filter", "rate_limits"]

CLUSTER = "limiter"
DESCRIPTOR = "key"
"""The descriptor's entry that tells the service a key's name."""
METADATA = "shared"
"""Field of a request's metadata with the name of its key, if that has a rate, as `admission.lua` writes it."""
SOCKET = "limiter.sock"
"""Socket of the service that runs next to a gateway, in the gateway's working directory."""

_TYPE = "type.googleapis.com/envoy.extensions.filters.http"
_NAME = "envoy.filters.http.ratelimit"
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def rate_limit_filter(shared: SharedLimits) -> dict[str, Any]:
    """The HTTP filter; requests pass if no decision comes in time."""
    return {
        "name": _NAME,
        "typed_config": {
            "@type": f"{_TYPE}.ratelimit.v3.RateLimit",
            "domain": "gateway",
            "timeout": f"{shared.timeout_ms / 1000:.3f}s",
            "failure_mode_deny": False,
            "rate_limited_as_resource_exhausted": True,
            "disable_x_envoy_ratelimited_header": True,
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": {"envoy_grpc": {"cluster_name": CLUSTER}},
            },
        },
    }


def rate_limits(space: str) -> list[dict[str, Any]]:
    """The facts of a request that are sent to the service; it is not called if the key has no rate.

    Args:
        space: the namespace of the request's metadata.
    """
    key = {"key": space, "path": [{"key": METADATA}]}
    action = {"descriptor_key": DESCRIPTOR, "source": "DYNAMIC", "metadata_key": key}
    return [{"actions": [{"metadata": action}]}]


def unshared() -> dict[str, Any]:
    """The filter's configuration, by its name, for a route whose requests are not counted together."""
    return {_NAME: {"@type": f"{_TYPE}.ratelimit.v3.RateLimitPerRoute", "vh_rate_limits": "IGNORE"}}


def limiter_cluster(shared: SharedLimits) -> dict[str, Any]:
    """The cluster of the service: next to the gateway, or at the address in the spec."""
    if shared.service is None:
        address: dict[str, Any] = {"pipe": {"path": SOCKET}}
    else:
        host, _, port = shared.service.rpartition(":")
        address = {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}
    return {
        "name": CLUSTER,
        "connect_timeout": "0.250s",
        "type": "STATIC" if shared.service is None else "STRICT_DNS",
        "load_assignment": {
            "cluster_name": CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            _OPTIONS: {
                "@type": f"type.googleapis.com/{_OPTIONS}",
                "explicit_http_config": {
                    "http2_protocol_options": {"connection_keepalive": {"interval": "5s", "timeout": "1s"}}
                },
            }
        },
    }
