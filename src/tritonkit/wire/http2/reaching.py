"""The first of a host's addresses that takes a connection, for tasks."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from typing import Final

from tritonkit.wire.names import Place

__all__ = ["reached"]

_NEXT_S: Final = 0.25
"""An address has so long before the next one is tried too (RFC 8305): the first may be a hole."""


async def reached(places: Sequence[Place]) -> socket.socket:
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
            _drop(task)
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


def _drop(task: asyncio.Task[socket.socket]) -> None:
    """Nobody wants the connection of this one any more."""
    if not task.cancel() and not task.cancelled() and task.exception() is None:
        task.result().close()
