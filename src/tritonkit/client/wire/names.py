"""Look-ups of host names, outside the threads and tasks of the calls that need them.

Nothing can end a look-up that hangs, so it runs in a separate thread, which a call whose time is up
leaves behind. All callers share one look-up of a name, whatever client they use: a DNS that hangs
costs one thread for each name, and no more than `_MAX_THREADS` in all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import threading
from collections import deque
from concurrent.futures import Future
from typing import Any, Final, TypeAlias

__all__ = ["Place", "look_up", "look_up_async"]

Place: TypeAlias = "tuple[Any, Any, int, str, Any]"
"""Family, kind, protocol, name and address, as `socket.getaddrinfo` gives them."""

_Name: TypeAlias = "tuple[str, int]"

_MAX_THREADS: Final = 16
"""Most threads; further names are queued."""


class _Lookups:
    """The look-ups under way in one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._pending: dict[_Name, Future[list[Place]]] = {}
        self._queue: deque[_Name] = deque()
        self._threads = 0

    def begin(self, name: _Name) -> Future[list[Place]]:
        """The look-up under way of this name, or a new one."""
        with self._lock:
            pending = self._pending.get(name)
            if pending is not None:
                return pending
            future: Future[list[Place]] = Future()
            future.set_running_or_notify_cancel()  # no caller can cancel it for the others
            if self._threads < _MAX_THREADS:
                try:
                    threading.Thread(target=self._work, name="tritonkit-dns", daemon=True).start()
                except RuntimeError as error:  # no more threads, or the interpreter is ending
                    future.set_exception(OSError(0, str(error)))
                    return future
                self._threads += 1
            self._pending[name] = future
            self._queue.append(name)
        return future

    def _work(self) -> None:
        """Look up the queued names."""
        while True:
            with self._lock:
                if not self._queue:
                    self._threads -= 1
                    return
                name = self._queue.popleft()
            places: list[Place] = []
            failed: BaseException | None = None
            try:
                places = socket.getaddrinfo(*name, type=socket.SOCK_STREAM)
            except BaseException as error:  # an interrupt too is for those who wait
                failed = error
            with self._lock:
                future = self._pending.pop(name)
            if failed is None:
                future.set_result(places)
            else:
                future.set_exception(failed)


_lookups = _Lookups()


def look_up(host: str, port: int) -> Future[list[Place]]:
    """The addresses of a host, in the system's order; immediately if `host` is an address.

    Returns:
        A future that cannot be cancelled; its error is `socket.gaierror` for an unknown name,
        `UnicodeError` for an impossible one.
    """
    global _lookups
    place = _literal(host, port)
    if place is not None:
        done: Future[list[Place]] = Future()
        done.set_result([place])
        return done
    if _lookups.pid != os.getpid():  # a fork: the threads stayed with the parent
        _lookups = _Lookups()
    return _lookups.begin((host, port))


async def look_up_async(host: str, port: int) -> list[Place]:
    """`look_up` for a task; the loop's own threads are left to the program."""
    return await asyncio.wrap_future(look_up(host, port))


def _literal(host: str, port: int) -> Place | None:
    """The place of a numeric address; one with a scope is left to the system."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    if "%" in host:
        return None
    stream = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    if version == 4:
        return (socket.AF_INET, *stream, (host, port))
    return (socket.AF_INET6, *stream, (host, port, 0, 0))
