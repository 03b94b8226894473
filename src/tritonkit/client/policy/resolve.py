"""Names that stand for several servers: every address DNS gives for the name is one.

A name is looked up at the first call, again by the first call after a while, and soon after a
server was lost. Only the first look-up keeps calls waiting; what is known stays in use meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from tritonkit.client.policy.pool import Target
from tritonkit.errors import DeadlineExceeded, ServerUnavailable, TritonkitError, UsageError
from tritonkit.wire.names import Place, look_up, look_up_async

__all__ = ["REFRESH_S", "LookUp", "Name", "Watch", "parse_name"]

REFRESH_S = 30.0
"""Seconds after which a name is looked up again."""

_SOON_S = 1.0
"""Seconds between two look-ups of a name at least."""


class Name(NamedTuple):
    """A host with any number of addresses."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"dns:{self.host}:{self.port}"


def parse_name(address: str) -> Name | None:
    """The name in `dns:host:port` or `dns:///host:port`; None for an address of one server.

    Raises:
        UsageError: no host, or no port from 1 to 65535.
    """
    if not address.startswith("dns:"):
        return None
    host, _, port = address.removeprefix("dns:").removeprefix("///").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not host or "/" in host or not 0 < number < 65536:
        raise UsageError(
            "address",
            found=address,
            wanted="dns:HOST:PORT, such as dns:triton.internal:8001",
            todo="name a host and its gRPC port",
        )
    return Name(host, number)


class Watch:
    """What is known of one name."""

    def __init__(
        self, name: Name, refresh_s: float, clock: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        self.name = name
        self.targets: tuple[Target, ...] = ()
        self.task: asyncio.Task[None] | None = None
        self.answered = threading.Event()
        self._refresh_s = refresh_s
        self._clock = clock
        self._changed = changed
        self._error: Exception | None = None
        self._looking = False
        self._began = self._due = -math.inf
        self._lock = threading.Lock()

    def due(self, now: float) -> bool:
        """Whether it should be looked up, or a first look-up waited for."""
        return now >= self._due or not self.targets

    def hurry(self, now: float) -> None:
        """A server was lost: look again soon."""
        self._due = min(self._due, max(now, self._began + _SOON_S))

    def begin(self, now: float) -> bool:
        """Whether the caller is to look it up now; nobody else will until `end`."""
        with self._lock:
            if self._looking or now < self._due:
                return False
            self._looking, self._began = True, now
            self._due = now + self._refresh_s
            if not self.targets:
                self.answered.clear()
            return True

    def end(self, targets: tuple[Target, ...], error: OSError | UnicodeError | None) -> None:
        """The look-up is over; after a failure what was known stays."""
        with self._lock:
            changed = bool(targets) and targets != self.targets
            if targets:
                self.targets = targets
            else:
                self._due = min(self._due, max(self._clock(), self._began + _SOON_S))
            self._error = error
            self._looking = False
        try:
            if changed:
                self._changed()
        except Exception as trouble:  # no transport for it: raised by the next call, not lost here
            self.targets, self._error = (), trouble
        self.answered.set()

    def failure(self) -> TritonkitError:
        """Why there is no server."""
        if isinstance(self._error, TritonkitError):
            return self._error
        if self._looking and self._error is None:
            return DeadlineExceeded(
                str(self.name),
                found="the name was not resolved: no answer from DNS in time",
                todo="allow more time with timeout_s, or see why this machine's DNS is slow",
                unprocessed=True,
            )
        reason = self._error.strerror if isinstance(self._error, OSError) else self._error
        return ServerUnavailable(
            str(self.name),
            found=f"the name was not resolved: {reason or 'no answer from DNS in time'}",
            todo="check the name, and that this machine's DNS knows it",
        )

    def close(self) -> None:
        """Do not wait for a look-up under way."""
        if self.task is not None:
            self.task.cancel()

    def look(self) -> None:
        """Have it looked up; `end` follows, in another thread."""
        look_up(*self.name).add_done_callback(self._looked)

    def _looked(self, done: Future[list[Place]]) -> None:
        error = done.exception()
        if error is None:
            self.end(_targets(self.name, done.result()), None)
        else:
            self.end((), error if isinstance(error, (OSError, UnicodeError)) else None)

    async def look_async(self) -> None:
        """Look it up in this task."""
        try:
            found = await look_up_async(*self.name)
        except (OSError, UnicodeError) as error:
            self.end((), error)
        except BaseException:  # cancelled: the next call may look
            self.end((), None)
            raise
        else:
            self.end(_targets(self.name, found), None)


class LookUp(NamedTuple):
    """Look a name up beside the calls; wait for it at most `seconds`."""

    watch: Watch
    now: float
    seconds: float

    def block(self) -> None:
        """In another thread: nothing else can end a look-up that hangs."""
        if self.watch.begin(self.now):
            self.watch.look()
        if self.seconds > 0:
            self.watch.answered.wait(min(self.seconds, threading.TIMEOUT_MAX))

    async def wait(self) -> None:
        """In a task of its own: the caller's cancellation must not end it for the others."""
        if self.watch.begin(self.now):
            self.watch.task = asyncio.get_running_loop().create_task(self.watch.look_async())
        if self.seconds > 0 and self.watch.task is not None:
            await asyncio.wait({self.watch.task}, timeout=self.seconds)


def _targets(name: Name, found: list[Place]) -> tuple[Target, ...]:
    """Every address once, in a stable order; DNS turns its answers round."""
    addresses = {_address(family, where) for family, _, _, _, where in found}
    return tuple(Target(address, name.host) for address in sorted(addresses))


def _address(family: int, where: tuple[Any, ...]) -> str:
    if family != socket.AF_INET6:
        return f"{where[0]}:{where[1]}"
    scope = f"%{where[3]}" if where[3] and "%" not in where[0] else ""
    return f"[{where[0]}{scope}]:{where[1]}"
