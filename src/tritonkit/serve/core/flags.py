"""The arguments of tritonserver, the same inside and outside a container; most of them restrict access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from .keys import HEADER, PLACEHOLDER

__all__ = [
    "CACHE_BYTES",
    "GRPC_FLAGS",
    "HTTP_SOCKET",
    "METRICS_SOCKET",
    "POOL_FLAGS",
    "closed_flags",
    "flag_values",
    "server_arguments",
]

CACHE_BYTES = 64 << 20
"""The response cache, in the server's own memory."""

GRPC_FLAGS: dict[str, object] = {
    # After this many ms gRPC pings a caller. The calls of one that does not answer in time, because it does not read
    # its connection (--grpc-keepalive-timeout, 20 s), are cancelled. Triton's default is two hours.
    "grpc-keepalive-time": 300_000,
    # A gateway pings each second, even during a long call without other traffic. By Triton's defaults the third such
    # ping in five minutes ends the connection and the call.
    "grpc-http2-min-recv-ping-interval-without-data": 500,
    "grpc-keepalive-permit-without-calls": 1,
}
"""tritonkit's own defaults, which a user's flags replace."""

_PINNED_FLAG, _CUDA_FLAG = "pinned-memory-pool-byte-size", "cuda-memory-pool-byte-size"
POOL_FLAGS = (_PINNED_FLAG, _CUDA_FLAG)
"""Flags for the pools of memory, which a user's flags replace."""

_LOADING = {
    "model-control-mode": "explicit",
    # If one model fails to load, the others are still served, and the index names the one that failed.
    "exit-on-error": "false",
    # The old version answers while a model is reloaded, and if the new version does not load, so a balancer must not
    # take the server out then. A separate check waits for all models at the start.
    "strict-readiness": "false",
}

_DRIVER = Path("/dev/nvidiactl")
"""A device file of NVIDIA's driver: there is a GPU."""

HTTP_SOCKET = "http.sock"
METRICS_SOCKET = "metrics.sock"
"""A socket in the server's working directory, which only its owner can enter. The path is relative, because the path of
a socket can have at most 107 characters (unix(7))."""

_ADMIN = ("model-repository", "logging", "trace")
_SHARED_MEMORY = "shared-memory"

NO_KEY = f"off-{PLACEHOLDER}"
"""The header value that would open a disabled API. It holds the admin key, so that no other process can guess it."""


def flag_values(arguments: Sequence[str], name: str) -> list[str]:
    """The values that arguments give a flag, each as `--name=value` or as `--name value`."""
    values = []
    for word, following in pairwise((*arguments, "")):
        flag, joined, value = word.partition("=")
        if flag == f"--{name}":
            values.append(value if joined else following)
    return values


def closed_flags(grpc_host: str, grpc_port: int, *, shared_memory: bool = False) -> list[str]:
    """Flags for gRPC on its port, HTTP and metrics on unix sockets, and all that changes the server behind the key.

    Triton 2.51's HTTP front end ends with a segmentation fault on deeply nested JSON and on a body of
    very many chunks (CVE-2025-23310, fixed in 25.07), so only its owner may reach it. A proxy stands
    in front of it if HTTP is requested (`rest`), and another in front of the metrics (`metrics`).

    Args:
        grpc_host, grpc_port: where gRPC listens.
        shared_memory: whether the key also opens the shared-memory API, which is closed otherwise.
    """
    admin = (*_ADMIN, _SHARED_MEMORY) if shared_memory else _ADMIN
    rules = [f"{','.join(admin)}:{HEADER}={PLACEHOLDER}"]
    if not shared_memory:
        rules.append(f"{_SHARED_MEMORY}:{HEADER}={NO_KEY}")
    # Triton requires three different ports, even if it uses a socket instead.
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
    pinned_bytes: int = 0,
    cuda_bytes: Mapping[int, int] = MappingProxyType({}),
) -> list[str]:
    """The command line of a tritonserver, to be run without a shell; `Launch` replaces PLACEHOLDER in it.

    Args:
        binary, repository, backends: where they are.
        models: names to load.
        caches: the folder of response caches, if a model uses one.
        limits_rate: whether a model has a rate limiter; Triton ignores it without a flag.
        drain_s: time limit for requests in flight at the end.
        prefix: prefix of the names of the stubs' regions.
        region_bytes: first size of each region.
        grpc_host, grpc_port, shared_memory: see `closed_flags`.
        config: the name of the configuration to use for each model that has it, now and in later loads.
        pinned_bytes: size of the pool of pinned memory; 0 if no model runs on a GPU.
        cuda_bytes: GPU -> size of the pool of its memory.
    """
    flags: dict[str, object] = {
        "model-repository": repository,
        "backend-directory": backends,
        "exit-timeout-secs": drain_s,
    }
    flags |= {**_LOADING, **GRPC_FLAGS, **_optional_flags(caches, limits_rate, config), **_pinned_flag(pinned_bytes)}
    return [
        str(binary),
        "--disable-auto-complete-config",
        *(f"--{name}={value}" for name, value in flags.items()),
        *closed_flags(grpc_host, grpc_port, shared_memory=shared_memory),
        *(f"--{_CUDA_FLAG}={number}:{size}" for number, size in cuda_bytes.items()),
        *(f"--load-model={name}" for name in models),
        *_region_flags(prefix, region_bytes),
    ]


def _region_flags(prefix: str, size: int) -> tuple[str, ...]:
    """The stubs' regions. The settings of `python` apply to Python-based backends too (tried on 2.51)."""
    settings = (f"shm-region-prefix-name={prefix}", f"shm-default-byte-size={size}")
    return tuple(f"--backend-config=python,{setting}" for setting in settings)


def _optional_flags(caches: Path | None, limits_rate: bool, config: str) -> dict[str, object]:
    flags: dict[str, object] = {}
    if not _DRIVER.exists():
        flags["allow-gpu-metrics"] = "false"
    if caches is not None:
        flags |= {"cache-directory": caches, "cache-config": f"local,size={CACHE_BYTES}"}
    if limits_rate:
        flags["rate-limit"] = "execution_count"
    if config:
        flags["model-config-name"] = config
    return flags


def _pinned_flag(size: int) -> dict[str, object]:
    """The pool of pinned memory: Triton's own size if there is a GPU that no model asks for, and none without one."""
    return {_PINNED_FLAG: size} if size or not _DRIVER.exists() else {}
