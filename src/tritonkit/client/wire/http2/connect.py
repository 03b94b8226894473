"""Connects to a server, for threads and for tasks: name look-up, socket, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Final

from tritonkit.client.wire.channel import ChannelConfig
from tritonkit.client.wire.http2.socket_io import SocketIO, TLSLayer
from tritonkit.client.wire.names import Place, look_up, look_up_async
from tritonkit.client.wire.status import unreachable

__all__ = ["connect", "connect_async", "reason"]

_NEXT_S: Final = 0.25
"""Seconds before the next address is tried in addition (RFC 8305): the first may never answer."""

_IDLE_S: Final = 5
"""Idle seconds after which the system sends a TCP keepalive probe, then one each second."""


def reason(error: BaseException) -> str:
    """The text of an error of the operating system or of TLS, without its number."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    tls = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    if tls:
        return str(tls).replace("_", " ").lower()
    if isinstance(error, socket.gaierror) or not isinstance(error, OSError) or not error.errno:
        return getattr(error, "strerror", None) or str(error)
    # asyncio puts its own words around the system's.
    return os.strerror(error.errno)


def connect(config: ChannelConfig, deadline: float, most_s: float = math.inf) -> SocketIO:
    """Reach the server by a `time.monotonic()` moment, or raise `ServerUnavailable`; its system within `most_s`."""
    with _failing(config):
        future = look_up(config.address.host, config.address.port)
        places = future.result(max(deadline - time.monotonic(), 0.0))
    with _failing(config, "cannot connect"):
        sock = _connected(places, min(deadline, time.monotonic() + most_s))
    tls = None
    with _failing(config, _NO_TLS), contextlib.ExitStack() as on_error:
        on_error.callback(sock.close)
        _tune(sock)
        if config.tls is not None:
            tls = TLSLayer(config.tls.context, config.server_name)
            tls.handshake(sock, deadline)
        on_error.pop_all()
    return SocketIO(sock, tls)


async def connect_async(
    config: ChannelConfig, timeout_s: float, protocol: asyncio.Protocol, most_s: float = math.inf
) -> None:
    """The same for a task: `protocol` speaks over the connection."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    with _failing(config):
        async with asyncio.timeout_at(until):
            places = await look_up_async(config.address.host, config.address.port)
    with _failing(config, "cannot connect"):
        async with asyncio.timeout_at(min(until, loop.time() + most_s)):
            sock = await _first_connected(places)
    with _failing(config, _NO_TLS):
        _tune(sock)
        async with asyncio.timeout_at(until):
            await loop.create_connection(
                lambda: protocol,
                sock=sock,
                ssl=None if config.tls is None else config.tls.context,
                server_hostname=config.server_name if config.tls else None,
            )


_NO_TLS: Final = "no TLS connection with HTTP/2"


@contextlib.contextmanager
def _failing(config: ChannelConfig, what: str = "") -> Iterator[None]:
    """Turn the system's errors into `ServerUnavailable` that says what failed; without `what`, the name look-up."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        host = config.address.host
        if what:
            problem = f"{what}: {reason(error)}"
        elif isinstance(error, TimeoutError):
            problem = f"the name {host} was not resolved in time"
        else:
            problem = f"the name {host} is not known: {reason(error)}"
        raise unreachable(config.name, problem, unprocessed=True) from error


def _tune(sock: socket.socket) -> None:
    """Set the socket options for a connection of small urgent messages."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # A host that vanished is noticed by the kernel, idle or not: within half a minute. What it knows after
    # seven seconds is enough for calls that another server can take over.
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 30_000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _no_address() -> OSError:
    return OSError(errno.EADDRNOTAVAIL, "the name has no address")


def _connected(places: Sequence[Place], deadline: float) -> socket.socket:
    """A socket connected to the first address that accepts; `OSError` if none does."""
    failed = _no_address()
    for at, (family, kind, protocol, _, address) in enumerate(places):
        sock = socket.socket(family, kind, protocol)
        try:
            # Each address gets its share of the time: the first may be a hole.
            share_s = (deadline - time.monotonic()) / (len(places) - at)
            sock.settimeout(max(share_s, 0.001))
            sock.connect(address)
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failed


async def _first_connected(places: Sequence[Place]) -> socket.socket:
    """The same, but a second address is tried concurrently when the first takes long."""
    left = list(reversed(places))
    trying: set[asyncio.Task[socket.socket]] = set()
    failed = _no_address()
    try:
        while left or trying:
            if left:
                trying.add(asyncio.create_task(_connected_async(left.pop())))
            done, _ = await asyncio.wait(trying, timeout=_NEXT_S if left else None, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                trying.remove(task)
                try:
                    return task.result()
                except OSError as error:
                    failed = error
    finally:
        for task in trying:
            _discard(task)
    raise failed


async def _connected_async(place: Place) -> socket.socket:
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
