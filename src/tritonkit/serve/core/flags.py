"""The arguments of tritonserver: the same in the container and without one, above all who can do what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .keys import HEADER, PLACEHOLDER

__all__ = ["CACHE_BYTES", "GRPC_FLAGS", "HTTP_SOCKET", "METRICS_SOCKET", "closed_flags", "server_arguments"]

CACHE_BYTES = 64 << 20
"""The response cache, in the server's own memory."""

GRPC_FLAGS: dict[str, object] = {
    # After this many ms gRPC asks a caller for a sign of life. One that does not read its connection gives none
    # (--grpc-keepalive-timeout, 20 s), and its calls are cancelled. Triton's default is two hours.
    "grpc-keepalive-time": 300_000,
    # A gateway pings each second, also while a call is worked on for long and no other goes by. By Triton's defaults
    # the third such ping in five minutes ends the connection, and the call with it.
    "grpc-http2-min-recv-ping-interval-without-data": 500,
    "grpc-keepalive-permit-without-calls": 1,
}
"""Defaults of tritonkit's own, which a user's flags replace."""

_LOADING = {
    "model-control-mode": "explicit",
    # With one bad model the others still come up, and the index says which one it was.
    "exit-on-error": "false",
    # While a model is loaded again, or where its new version does not load, the old one answers: a balancer that
    # asks must not take the server out. Whether all models came up at the start is looked at by itself.
    "strict-readiness": "false",
}

HTTP_SOCKET = "http.sock"
METRICS_SOCKET = "metrics.sock"
"""In the server's working directory, which is its owner's alone. Relative, because the path of a socket
may have 107 characters at most (unix(7))."""

_ADMIN = ("model-repository", "logging", "trace")
_SHARED_MEMORY = "shared-memory"

NO_KEY = f"off-{PLACEHOLDER}"
"""The header value that would open a disabled API. It holds the admin key, so that no other process can guess it."""


def closed_flags(grpc_host: str, grpc_port: int, *, shared_memory: bool = False) -> list[str]:
    """gRPC on its port, HTTP and metrics on unix sockets, all that changes the server behind the key.

    Triton 2.51's HTTP front end ends with a segmentation fault on deeply nested JSON and on a body of
    very many chunks (CVE-2025-23310, fixed in 25.07): only its owner may reach it. A guard stands
    before it where HTTP is wanted (`rest`), another before the metrics (`metrics`).

    Args:
        grpc_host, grpc_port: where gRPC listens.
        shared_memory: whether the key also opens the shared-memory API; else nothing does.
    """
    admin = (*_ADMIN, _SHARED_MEMORY) if shared_memory else _ADMIN
    rules = [f"{','.join(admin)}:{HEADER}={PLACEHOLDER}"]
    if not shared_memory:
        rules.append(f"{_SHARED_MEMORY}:{HEADER}={NO_KEY}")
    # Triton wants the three ports to differ, also those that a socket leaves unused.
    unused = [port for port in (1, 2, 3) if port != grpc_port]
    return [
        f"--grpc-address={grpc_host}",
        f"--grpc-port={grpc_port}",
        f"--http-address=unix:{HTTP_SOCKET}",
        f"--http-port={unused[0]}",
        f"--metrics-address=unix:{METRICS_SOCKET}",
        f"--metrics-port={unused[1]}",
        *(f"--grpc-restricted-protocol={rule}" for rule in rules),
        *(f"--http-restricted-api={rule}" for rule in rules),
    ]


def server_arguments(
    *,
    binary: Path,
    repository: Path,
    backends: Path,
    models: Sequence[str],
    caches: Path | None,
    limits_rate: bool,
    drain_s: int,
    prefix: str,
    region_bytes: int,
    grpc_host: str,
    grpc_port: int,
    shared_memory: bool = False,
    config: str = "",
) -> list[str]:
    """The command line of a tritonserver, to be run without a shell; PLACEHOLDER in it is for `Launch` to fill.

    Args:
        binary, repository, backends: where they are.
        models: names to load.
        caches: the folder of response caches, where a model asks for one.
        limits_rate: whether a model has a rate limiter, which Triton else ignores.
        drain_s: how long requests in flight may take at the end.
        prefix: begins the names of the stubs' regions.
        region_bytes: what each of them starts with.
        grpc_host, grpc_port, shared_memory: see `closed_flags`.
        config: the name of the configuration to load of each model that has it, now and with later loads.
    """
    flags: dict[str, object] = {
        "model-repository": repository,
        "backend-directory": backends,
        "exit-timeout-secs": drain_s,
        **_LOADING,
        **GRPC_FLAGS,
        **_optional_flags(caches, limits_rate, config),
    }
    return [
        str(binary),
        "--disable-auto-complete-config",
        *(f"--{name}={value}" for name, value in flags.items()),
        *closed_flags(grpc_host, grpc_port, shared_memory=shared_memory),
        *(f"--load-model={name}" for name in models),
        # What `python` is given holds for the backends made of Python too (tried on 2.51).
        f"--backend-config=python,shm-region-prefix-name={prefix}",
        f"--backend-config=python,shm-default-byte-size={region_bytes}",
    ]


def _optional_flags(caches: Path | None, limits_rate: bool, config: str) -> dict[str, object]:
    flags: dict[str, object] = {}
    if not Path("/dev/nvidiactl").exists():
        flags |= {"allow-gpu-metrics": "false", "pinned-memory-pool-byte-size": 0}
    if caches is not None:
        flags |= {"cache-directory": caches, "cache-config": f"local,size={CACHE_BYTES}"}
    if limits_rate:
        flags["rate-limit"] = "execution_count"
    if config:
        flags["model-config-name"] = config
    return flags
