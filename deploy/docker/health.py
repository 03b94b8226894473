"""Whether the server in this container can answer: exit code 0 or 1, with the reason in one line.

Triton's own readiness is not enough: it calls a model ready whose Python stub has died
(triton-inference-server/server#8604). Triton waits for the stubs that it ends itself; one that died
stays a zombie below it.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

__all__ = ["dead_stubs", "main", "ready"]

# The kernel keeps 15 characters of triton_python_backend_stub (proc(5), comm).
_STUB = "(triton_python_b)"
_PORT = 8000
_AGAIN_S = 0.4


def dead_stubs(proc: Path = Path("/proc")) -> set[int]:
    """The stubs that ended and that nobody has waited for."""
    found = set()
    for folder in proc.glob("[0-9]*"):
        try:
            head, name, rest = (folder / "stat").read_text().partition(_STUB)
        except OSError:
            continue
        if name and rest.split()[0] == "Z":
            found.add(int(head))
    return found


def ready(port: int = _PORT, timeout_s: float = 3.0) -> bool:
    """Whether Triton says that it and all its models take requests."""
    request = b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
            connection.sendall(request)
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def main() -> int:
    """Look once."""
    dead = dead_stubs()
    if dead:
        # Unloading a model leaves a zombie for a moment.
        time.sleep(_AGAIN_S)
        dead &= dead_stubs()
    if dead:
        sys.stdout.write(f"{len(dead)} Python stubs have died\n")
        return 1
    if not ready():
        sys.stdout.write("not ready: a model loads or did not, or the server does not answer\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
