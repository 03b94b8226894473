"""Arguments of tritonserver that decide who can do what: the same in the container and without one."""

from __future__ import annotations

from .keys import HEADER, PLACEHOLDER

__all__ = ["HTTP_SOCKET", "METRICS_SOCKET", "closed_flags"]

HTTP_SOCKET = "http.sock"
METRICS_SOCKET = "metrics.sock"
"""In the server's working directory, which is its owner's alone. Relative, because the path of a socket
may have 107 characters at most (unix(7))."""

_ADMIN = ("model-repository", "logging", "trace")
_SHARED_MEMORY = "shared-memory"

NO_KEY = f"off-{PLACEHOLDER}"
"""What would open an API that is off. It holds the admin key, so that nobody else can make it up."""


def closed_flags(grpc_host: str, grpc_port: int, *, shared_memory: bool = False) -> list[str]:
    """gRPC on its port, HTTP and metrics on unix sockets, all that changes the server behind the key.

    Triton 2.51's HTTP front end ends with a segmentation fault on deeply nested JSON and on a body of
    very many chunks (CVE-2025-23310, fixed in 25.07): nobody but the owner may reach it. A guard stands
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
