"""Servers that nobody here wrote, each started for real: gRPC's own, and proxies before it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from tests.client.wire.grpc_servers import Answers, grpc_server
from tests.parts import SERVER
from tests.ports import free_port
from tritonkit.serve.core.rest import find_envoy

__all__ = ["PROXIES", "Started", "Way", "started"]


@dataclass(frozen=True)
class Way:
    """How a client reaches the server.

    Attributes:
        tls: a folder with server.pem and server.key, or None for plain text.
        streams: calls that a connection carries at once.
        idle_s: seconds after which an idle connection is cut.
        requests: calls after which a connection is closed with GOAWAY; only nginx counts them.
        age_s: seconds after which a connection is closed with GOAWAY; HAProxy has no such setting.
    """

    tls: Path | None = None
    streams: int = 100
    idle_s: int = 60
    requests: int = 1_000_000
    age_s: float = 3600.0


@dataclass(frozen=True)
class Started:
    """A server that takes calls at `address`; `stop_backend` ends what stands behind a proxy."""

    address: str
    answers: Answers
    stop_backend: Callable[[], None]
    process: subprocess.Popen[bytes] | None = None


def _grpc_options(way: Way) -> list[tuple[str, int]]:
    return [
        ("grpc.max_concurrent_streams", way.streams),
        ("grpc.max_connection_idle_ms", way.idle_s * 1000),
        ("grpc.max_connection_age_ms", int(way.age_s * 1000)),
        ("grpc.max_connection_age_grace_ms", 60_000),
        ("grpc.max_metadata_size", 128 * 2**10),
        ("grpc.absolute_max_metadata_size", 128 * 2**10),
    ]


def _nginx(folder: Path, port: int, backend: int, way: Way) -> list[str]:
    tls = ""
    if way.tls is not None:
        tls = f"ssl_certificate {way.tls}/server.pem; ssl_certificate_key {way.tls}/server.key;"
    temporary = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(f"""
daemon off;
pid {folder}/nginx.pid;
error_log stderr warn;
worker_processes 1;
events {{ worker_connections 256; }}
http {{
  access_log off;
  {temporary}
  server {{
    listen 127.0.0.1:{port} {"ssl " if tls else ""}http2;
    {tls}
    http2_max_concurrent_streams {way.streams};
    keepalive_timeout {way.idle_s}s;
    keepalive_requests {way.requests};
    keepalive_time {int(way.age_s)}s;
    client_max_body_size 0;
    large_client_header_buffers 4 64k;
    location / {{ grpc_pass grpc://127.0.0.1:{backend}; grpc_buffer_size 64k; }}
  }}
}}
""")
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
    return [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]


def _haproxy(folder: Path, port: int, backend: int, way: Way) -> list[str]:
    listen = "proto h2"
    if way.tls is not None:
        pair = folder / "pair.pem"
        pair.write_text((way.tls / "server.pem").read_text() + (way.tls / "server.key").read_text())
        listen = f"ssl crt {pair} alpn h2"
    (folder / "haproxy.cfg").write_text(f"""
global
  tune.bufsize 65536
  tune.h2.max-concurrent-streams {way.streams}
defaults
  mode http
  timeout connect 5s
  timeout client {way.idle_s}s
  timeout http-keep-alive {way.idle_s}s
  timeout server 60s
frontend calls
  bind 127.0.0.1:{port} {listen}
  default_backend triton
backend triton
  server triton 127.0.0.1:{backend} proto h2
""")
    haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin") or "haproxy"
    return [haproxy, "-db", "-f", str(folder / "haproxy.cfg")]


def _envoy(folder: Path, port: int, backend: int, way: Way) -> list[str]:
    types = "type.googleapis.com/envoy.extensions"
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "calls",
        "codec_type": "HTTP2",
        "drain_timeout": "0.1s",
        "max_request_headers_kb": 96,
        "http2_protocol_options": {"max_concurrent_streams": way.streams},
        "common_http_protocol_options": {
            "idle_timeout": f"{way.idle_s}s",
            "max_connection_duration": f"{way.age_s}s",
            "max_headers_count": 1000,
        },
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "triton", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"}}
        ],
    }
    chain: dict[str, Any] = {
        "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    }
    if way.tls is not None:
        pair = {
            "certificate_chain": {"filename": f"{way.tls}/server.pem"},
            "private_key": {"filename": f"{way.tls}/server.key"},
        }
        chain["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": f"{types}.transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": {"alpn_protocols": ["h2"], "tls_certificates": [pair]},
            },
        }
    http2 = {
        "@type": f"{types}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    config = {
        "static_resources": {
            "listeners": [{"name": "calls", "address": _envoy_address(port), "filter_chains": [chain]}],
            "clusters": [
                {
                    "name": "triton",
                    "connect_timeout": "5s",
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2
                    },
                    "load_assignment": {
                        "cluster_name": "triton",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _envoy_address(backend)}}]}],
                    },
                }
            ],
        }
    }
    (folder / "envoy.json").write_text(json.dumps(config))
    return [
        str(find_envoy(SERVER) or "envoy"),
        *("--config-path", str(folder / "envoy.json"), "--concurrency", "1"),
        *("--disable-hot-restart", "--log-level", "error", "--drain-time-s", "1"),
    ]


def _envoy_address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


PROXIES = {"nginx": _nginx, "haproxy": _haproxy, "envoy": _envoy}
"""By the name of the part of the system; each writes its configuration and gives its command."""


@contextlib.contextmanager
def started(name: str, folder: Path, way: Way) -> Iterator[Started]:
    """gRPC's own server, or a proxy before one in plain text.

    Args:
        name: "grpcio", or of `PROXIES`.
        folder: for the proxy's files.
        way: how it is reached.
    """
    host = "localhost" if way.tls is not None else "127.0.0.1"
    answers = Answers()
    if name == "grpcio":
        credentials = None
        if way.tls is not None:
            pair = ((way.tls / "server.key").read_bytes(), (way.tls / "server.pem").read_bytes())
            credentials = grpc.ssl_server_credentials([pair])
        with grpc_server(answers, credentials, options=_grpc_options(way)) as (server, port):
            yield Started(f"{host}:{port}", answers, lambda: server.stop(None).wait(10))
        return
    unlimited = _grpc_options(Way(streams=1000))
    with grpc_server(answers, options=unlimited) as (server, backend):
        port = free_port()
        with _running(PROXIES[name](folder, port, backend, way), port) as process:
            stop = lambda: server.stop(None).wait(10)  # noqa: E731
            yield Started(f"{host}:{port}", answers, stop, process)


@contextlib.contextmanager
def _running(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr)
    try:
        until = time.monotonic() + 60
        while True:
            assert process.poll() is None, f"{command[0]} ended by itself"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < until, f"{command[0]} does not listen"
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
