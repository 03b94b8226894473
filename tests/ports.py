"""Ports for programs that cannot choose one themselves."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

__all__ = ["free_port", "free_ports"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000


def free_port() -> int:
    """A port as `free_ports` gives several."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Free ports below those that the system gives to connections and to programs that bind port 0.

    No other program gets one by chance before the one that it is meant for.
    """
    with ExitStack() as bound:
        return [bound.enter_context(_listener()).getsockname()[1] for _ in range(count)]


def _listener() -> socket.socket:
    end = int(_RANGE.read_text().split()[0])
    while True:
        try:
            port = random.SystemRandom().randrange(_LOWEST, end) if end > _LOWEST else 0
            return socket.create_server(("127.0.0.1", port))
        except OSError:  # another program has it
            continue
