"""A choice of free ports, and the processes that have the others."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import ServerStartError, UsageError
from tritonkit.serve.values import Ports

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_free", "choose", "holder", "reachable", "refusal"]

_LISTEN = "0A"


def choose(requested: Ports, host: str, *, http: bool = True) -> Ports:
    """The requested ports, checked, with a free one for each 0; without `http` that port is 0.

    Raises:
        UsageError: a port requested twice, outside 0..65535, or a host that is not this machine's.
        ServerStartError: a port that is taken, with the process that has it.
    """
    ports = (requested.grpc, requested.metrics, *([requested.http] if http else []))
    given = [port for port in ports if port]
    if len(set(given)) < len(given) or not all(0 < port < 65536 for port in given):
        raise UsageError("ports", found=", ".join(map(str, given)), wanted="different ones of 1 to 65535, or 0")
    # All stay bound until the last is chosen, so that none is chosen twice.
    with ExitStack() as bound:
        grpc, metrics, *rest = [check_free(host, port, bound) for port in ports]
    return Ports(grpc, rest[0] if rest else 0, metrics)


def check_free(host: str, port: int, bound: ExitStack | None = None) -> int:
    """Bind a port (0: any) to check that it is free, and return its number.

    `bound` keeps it until that stack closes; otherwise it is released immediately.
    """
    with ExitStack() as here:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listener = (bound or here).enter_context(socket.socket(family, socket.SOCK_STREAM))
            # A connection that was closed a moment ago does not keep a server from listening.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
        except OSError as error:
            raise refusal(host, port, error) from error
        return int(listener.getsockname()[1])


def holder(port: int, proc: Path = Path("/proc")) -> str:
    """Text for the process that listens on a TCP port, `process NAME (pid N)`; empty if it cannot be found.

    Only root sees the sockets of another user's process.
    """
    inodes = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    for folder in proc.glob("[0-9]*/fd") if inodes else ():
        with suppress(OSError):
            for entry in folder.iterdir():
                with suppress(OSError):
                    if str(entry.readlink()) in inodes:
                        name = (folder.parent / "comm").read_text().strip()
                        return f"process {name} (pid {folder.parent.name})"
    return ""


def reachable(host: str, port: int) -> str:
    """The address `host:port` for a client on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _listening(port: int, proc: Path) -> Iterator[str]:
    """Inodes of the sockets that listen on a port, from /proc/net/tcp and tcp6 (proc(5))."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTEN and int(columns[1].rsplit(":", 1)[1], 16) == port:
                    yield columns[9]


def refusal(host: str, port: int, error: OSError) -> UsageError | ServerStartError:
    """The error for a port that cannot be listened on, with the process that has it."""
    if error.errno == errno.EADDRINUSE:
        who = holder(port)
        return ServerStartError(
            f"port {port}",
            found=f"it is in use by {who}" if who else f"it is in use on {host}",
            todo="stop what uses it, or choose another: --grpc-port, --http-port, --metrics-port"
            " (0 takes any free one)",
        )
    if error.errno == errno.EACCES:
        return ServerStartError(f"port {port}", found="this user may not listen there", todo="choose one above 1023")
    return UsageError(f"host {host!r}", found=error.strerror or str(error), wanted="an address of this machine")
