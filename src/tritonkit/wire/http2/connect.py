"""Reaching a server: names, sockets, TLS and the peer's SETTINGS, for threads and for tasks."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tritonkit.wire.http2.channel import ChannelConfig
from tritonkit.wire.http2.connection import Connection
from tritonkit.wire.http2.status import unreachable
from tritonkit.wire.http2.tls_layer import TLSLayer, received
from tritonkit.wire.names import Place, look_up

if TYPE_CHECKING:
    pass

__all__ = ["connect", "connect_async", "reason", "tuned", "unresolved"]

_CHUNK = 64 * 2**10
_NEXT_S: Final = 0.25
"""An address has so long before the next one is tried too (RFC 8305): the first may be a hole."""


def reason(error: BaseException) -> str:
    """What an operating system's or TLS's error says, in words alone."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    tls = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    if tls:
        return str(tls).replace("_", " ").lower()
    if isinstance(error, socket.gaierror) or not isinstance(error, OSError) or not error.errno:
        return getattr(error, "strerror", None) or str(error)
    # asyncio puts its own words around the system's.
    return os.strerror(error.errno)


def unresolved(host: str, error: BaseException) -> str:
    """Why a host has no address, in words."""
    if isinstance(error, TimeoutError):
        return f"the name {host} was not resolved in time"
    return f"the name {host} is not known: {reason(error)}"


def tuned(sock: socket.socket) -> None:
    """Set what a connection of small urgent messages wants."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # A host that vanished is noticed by the kernel, idle or not: within about a minute.
    for name, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 30_000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def connect(
    target: ChannelConfig, timeout_s: float, core: Connection
) -> tuple[socket.socket, TLSLayer | None]:
    """Reach the server and hear its SETTINGS.

    Raises:
        ServerUnavailable: no server answers there in time, or not in HTTP/2.
    """
    deadline = time.monotonic() + timeout_s
    sock = _reached(target, deadline)
    try:
        tuned(sock)
        sealed = None
        if target.tls is not None:
            sealed = TLSLayer(target.tls.context, target.server_name)
            sealed.handshake(sock, deadline)
        _greet(sock, sealed, core, deadline)
    except OSError as error:
        sock.close()
        what = "no HTTP/2 connection" if target.tls is None else "no TLS connection with HTTP/2"
        raise unreachable(target.name, f"UNAVAILABLE: {what}: {reason(error)}") from error
    except BaseException:
        sock.close()
        raise
    sock.settimeout(None)
    return sock, sealed


def _reached(target: ChannelConfig, deadline: float) -> socket.socket:
    host, port = target.address.host, target.address.port
    try:
        places = look_up(host, port).result(max(deadline - time.monotonic(), 0.0))
    except (OSError, UnicodeError) as error:  # TimeoutError is one of the first
        raise unreachable(target.name, f"UNAVAILABLE: {unresolved(host, error)}") from error
    failed = OSError(errno.EADDRNOTAVAIL, "the name has no address")
    for left, (family, kind, protocol, _, place) in zip(
        range(len(places), 0, -1), places, strict=True
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            # Each address gets its share of the time: the first may be a hole.
            sock.settimeout(max((deadline - time.monotonic()) / left, 0.001))
            sock.connect(place)
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise unreachable(target.name, f"UNAVAILABLE: cannot connect: {reason(failed)}") from failed


def _greet(sock: socket.socket, sealed: TLSLayer | None, core: Connection, deadline: float) -> None:
    while True:
        out, core.writer.out = core.writer.out, []
        data = b"".join(out) if sealed is None else sealed.encrypt(out)
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        sock.sendall(data)
        if core.lost or core.draining:
            raise OSError(0, core.lost or core.draining)
        if core.settings_received:
            return
        if time.monotonic() >= deadline:
            raise TimeoutError
        data = received(sock)
        if sealed is not None:
            data = sealed.decrypt(data)
        core.receive(data)


async def connect_async(places: Sequence[Place]) -> socket.socket:
    """A connected socket; `OSError` if no address takes a connection."""
    left = list(reversed(places))
    trying: set[asyncio.Task[socket.socket]] = set()
    failed = OSError(errno.EADDRNOTAVAIL, "the name has no address")
    try:
        while left or trying:
            if left:
                trying.add(asyncio.create_task(_connected(left.pop())))
            done, _ = await asyncio.wait(
                trying, timeout=_NEXT_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                trying.remove(task)
                error = task.exception()
                if error is None:
                    return task.result()
                if not isinstance(error, OSError):
                    raise error
                failed = error
    finally:
        for task in trying:
            _discard(task)
    raise failed


async def _connected(place: Place) -> socket.socket:
    family, kind, protocol, _, address = place
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _discard(task: asyncio.Task[socket.socket]) -> None:
    """Close what this task has connected or will have."""
    if not task.cancel() and not task.cancelled() and task.exception() is None:
        task.result().close()
