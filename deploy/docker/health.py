"""Whether the server in this container can answer: exit code 0 or 1, with the reason in one line.

    health.py [--alive]

With `--alive` it fails only for a server that takes a call and gives no answer: one that loads, is busy, or is being
started again by entry.py, is alive.

Triton's own readiness is not enough: it calls a model ready whose Python stub has died
(triton-inference-server/server#8604). Triton waits for the stubs that it ends itself; one that died
stays a zombie below it, also when entry.py has had its model loaded again.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

__all__ = ["LOADED", "REPLACED", "RUN", "STOPPING", "alive", "dead_stubs", "main", "ready"]

RUN = Path("/tmp/tritonkit")  # noqa: S108 (a tmpfs of the container's own)
"""Folder of Triton's sockets, made by entry.py; private to this user."""

REPLACED = "replaced-stubs"
"""The file there with the process ids of stubs whose models were loaded again and answer."""

STOPPING = "stopping"
"""The file there that stop.py writes."""

LOADED = "loaded"
"""The file there that entry.py writes once every model has a version that answers; Triton is ready without."""

# The kernel keeps 15 characters of triton_python_backend_stub (proc(5), comm).
_STUB = "(triton_python_b)"
_AGAIN_S = 0.4
_ALIVE_S = 8.0


def dead_stubs(proc: Path = Path("/proc"), folder: Path = RUN) -> set[int]:
    """The stubs that ended, that no process has waited for, and whose models were not loaded again."""
    dead = set()
    for process in proc.glob("[0-9]*"):
        try:
            head, name, rest = (process / "stat").read_text().partition(_STUB)
        except OSError:
            continue
        if name and rest.split()[0] == "Z":
            dead.add(int(head))
    try:
        return dead - set(map(int, (folder / REPLACED).read_text().split()))
    except (OSError, ValueError):
        return dead


def alive(folder: Path = RUN, timeout_s: float = _ALIVE_S) -> bool:
    """Whether Triton answers, or is not there to be asked."""
    try:
        return _asked("live", folder, timeout_s)
    except TimeoutError:
        return False
    except OSError:
        return True


def ready(folder: Path = RUN, timeout_s: float = 3.0) -> bool:
    """Whether Triton says that it and all its models take requests."""
    try:
        return _asked("ready", folder, timeout_s)
    except OSError:
        return False


def _asked(what: str, folder: Path, timeout_s: float) -> bool:
    request = f"GET /v2/health/{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(folder / "http.sock"))
        connection.sendall(request.encode())
        return connection.recv(64).startswith(b"HTTP/1.1 200")


def main(arguments: list[str] | None = None) -> int:
    """Check once."""
    if (arguments or sys.argv[1:]) == ["--alive"]:
        if alive():
            return 0
        sys.stdout.write(f"Triton takes calls and has not answered in {_ALIVE_S:.0f} s\n")
        return 1
    if (RUN / STOPPING).exists():
        sys.stdout.write("it is about to end\n")
        return 1
    dead = dead_stubs()
    if dead:
        # Unloading a model leaves a zombie for a moment.
        time.sleep(_AGAIN_S)
        dead &= dead_stubs()
    if dead:
        sys.stdout.write(f"{len(dead)} Python stubs have died\n")
        return 1
    if not (RUN / LOADED).exists() or not ready():
        sys.stdout.write("not ready: a model loads or did not, or the server does not answer\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
