"""Envoy's routes, in order: the requests that may pass to Triton's HTTP, and the answers to all others."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["routes"]

# The names that Triton accepts, except characters that would need an escape in a path.
_MODEL = r"/v2/models/[A-Za-z0-9._~-]+(/versions/[0-9]+)?"
_READ = rf"/v2|/v2/health/(live|ready)|/v2/models/stats|{_MODEL}(/ready|/config|/stats)?"
_INFER = rf"{_MODEL}/(infer|generate)"
_STREAM = rf"{_MODEL}/generate_stream"
_CLOSED = r"/v2/(repository|systemsharedmemory|cudasharedmemory|trace|logging)(/.*)?|/v2/models/.*/trace/.*"
_CONTENT_TYPES = r"(?i)application/(json|octet-stream)([ \t]*;.*)?"

_LOOPBACK = (r"localhost", r"127\.[0-9.]+", r"\[::1\]")
_ANY_ADDRESS = (r"[0-9.]+", r"\[[0-9A-Fa-f:.]+\]")
_HOST = re.compile(r"[A-Za-z0-9._-]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._\[\]:-]+")

_TYPE = "type.googleapis.com/envoy.extensions.filters.http"


def routes(
    address: str, hosts: Sequence[str], origins: Sequence[str], max_request_bytes: int, response_time_s: float
) -> dict[str, Any]:
    """The route configuration, from the arguments of `rest.envoy_config`. The first matching route decides.

    Raises:
        ValueError: a host or an origin is malformed.
    """
    host: dict[str, Any] = {
        "name": "virtual",
        "domains": ["*"],
        "routes": [
            *_strangers(address, hosts, origins),
            *([_preflight()] if origins else []),
            *_for_inference(max_request_bytes, response_time_s),
            _pass(_READ, "GET", response_time_s, buffer=1),
            _refuse(405, "the method: wanted GET", path=_READ, allow="GET"),
            _refuse(405, "the method: wanted POST", path=f"{_INFER}|{_STREAM}", allow="POST"),
            _refuse(
                403,
                "closed here: what changes the server is open to its owner alone, over gRPC with the admin key",
                path=_CLOSED,
            ),
            _refuse(
                404,
                "nothing is here; served are /v2, /v2/health, and /v2/models/NAME with infer, generate,"
                " generate_stream, ready, config and stats",
            ),
        ],
    }
    if origins:
        host["typed_per_filter_config"] = {"cors": _cors(origins)}
    return {"name": "rest", "virtual_hosts": [host]}


def _strangers(address: str, hosts: Sequence[str], origins: Sequence[str]) -> list[dict[str, Any]]:
    """Routes for web pages. A browser lets any page send a request here, but names the server's host and the page."""
    refused = []
    if "*" not in hosts:
        refused.append(
            _refuse(
                403,
                "the Host header: found a name that is not this server's; start it with that name among its hosts",
                [_header(":authority", rf"(?i)({'|'.join(_names(address, hosts))})(:[0-9]+)?", invert=True)],
            )
        )
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin: wanted https://name, with :port where it has one")
    page = [{"name": "origin", "present_match": True}]
    if origins:
        page.append(_header("origin", "|".join(map(re.escape, origins)), invert=True))
    refused.append(
        _refuse(
            403,
            "the Origin header: found a web page that may not call this server; start it with that origin allowed",
            page,
        )
    )
    return refused


def _preflight() -> dict[str, Any]:
    """The route of preflight requests; the filter `cors` answers them, but only on a route to a cluster."""
    asks = {"name": "access-control-request-method", "present_match": True}
    return {"match": _match("", [_header(":method", "OPTIONS"), asks]), "route": {"cluster": "triton"}}


def _names(address: str, hosts: Sequence[str]) -> list[str]:
    """Patterns of this server's names. A numeric one cannot be rebound by a page's DNS."""
    for host in hosts:
        if not _HOST.fullmatch(host) and not _is_address(host):
            raise ValueError(f"{host!r} is no host: wanted a name or an address, without a port")
    numeric = ipaddress.ip_address(address)
    own = _ANY_ADDRESS if numeric.is_unspecified else [_as_authority(address)]
    return [*_LOOPBACK, *own, *map(_as_authority, hosts)]


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return False


def _as_authority(host: str) -> str:
    host = host.strip("[]")
    return re.escape(f"[{host}]" if ":" in host else host)


def _for_inference(max_request_bytes: int, response_time_s: float) -> list[dict[str, Any]]:
    path = f"{_INFER}|{_STREAM}"
    post = _header(":method", "POST")
    too_long = {"start": max_request_bytes + 1, "end": (1 << 63) - 1}
    return [
        # A body with a length is refused before it is sent; otherwise the buffer's limit ends it.
        _refuse(
            413,
            f"the request: found a longer body, wanted {max_request_bytes} bytes at most",
            path=path,
            headers=[post, {"name": "content-length", "range_match": too_long}],
        ),
        _refuse(
            415,
            "the Content-Encoding header: wanted none, send the body as it is",
            path=path,
            headers=[post, {"name": "content-encoding", "present_match": True}],
        ),
        # For requests that an HTML form could send, browsers make no preflight request.
        _refuse(
            415,
            "the Content-Type header: wanted application/json or application/octet-stream",
            path=path,
            headers=[
                post,
                {"name": "content-type", "present_match": True},
                _header("content-type", _CONTENT_TYPES, invert=True),
            ],
        ),
        _pass(_INFER, "POST", response_time_s),
        # The limit applies to each piece of the answer, not to all of it.
        _pass(_STREAM, "POST", 0.0, idle_s=response_time_s),
    ]


def _pass(
    path: str, method: str, time_s: float, *, idle_s: float | None = None, buffer: int | None = None
) -> dict[str, Any]:
    """A route to Triton. `buffer` is the limit for requests that need no body, whose bytes Triton does not read."""
    route: dict[str, Any] = {"cluster": "triton", "timeout": f"{time_s:.3f}s"}
    if idle_s is not None:
        route["idle_timeout"] = f"{idle_s:.3f}s"
    filters: dict[str, Any] = {"buffer": _on(), "lua": _on()}
    if buffer is not None:
        per_route = {"@type": f"{_TYPE}.buffer.v3.BufferPerRoute", "buffer": {"max_request_bytes": buffer}}
        filters = {"buffer": per_route}
    match = _match(path, [_header(":method", method)])
    return {"match": match, "route": route, "typed_per_filter_config": filters}


def _on() -> dict[str, Any]:
    """Enable a filter that is off elsewhere, with its own settings."""
    return {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}}


def _refuse(
    status: int, words: str, headers: Sequence[dict[str, Any]] = (), *, path: str = "", allow: str = ""
) -> dict[str, Any]:
    answer = {"status": status, "body": {"inline_string": words}}
    route: dict[str, Any] = {"match": _match(path, headers), "direct_response": answer}
    if allow:
        route["response_headers_to_add"] = [{"header": {"key": "allow", "value": allow}}]
    return route


def _match(path: str, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    where = {"safe_regex": {"regex": path}} if path else {"prefix": "/"}
    return {**where, "headers": list(headers)}


def _header(name: str, pattern: str, *, invert: bool = False) -> dict[str, Any]:
    """A matcher for headers whose whole value fits the pattern (RE2); inverted, for those that have another value."""
    return {"name": name, "string_match": {"safe_regex": {"regex": pattern}}, "invert_match": invert}


def _cors(origins: Sequence[str]) -> dict[str, Any]:
    """The CORS headers that browsers get before and after a call from one of these pages."""
    return {
        "@type": f"{_TYPE}.cors.v3.CorsPolicy",
        "allow_origin_string_match": [{"exact": origin} for origin in origins],
        "allow_methods": "GET, POST",
        "allow_headers": "content-type, inference-header-content-length",
        "expose_headers": "inference-header-content-length",
        "max_age": "600",
    }
