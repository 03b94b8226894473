"""Names that stand for several servers: every address that DNS returns for the name is a server.

A name is looked up at the first call, again by the first call after a while, and soon after a
server was lost. Only the first look-up keeps calls waiting; later ones leave the known addresses in use meanwhile.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress

from tritonkit.client.waiting import Event
from tritonkit.client.wire.channel import Address, parse_address
from tritonkit.client.wire.names import Place, look_up
from tritonkit.errors import DeadlineExceeded, ServerUnavailable, TritonkitError, UsageError

__all__ = ["REFRESH_S", "Resolver", "parse_name"]

REFRESH_S = 30.0
"""Seconds after which a name is looked up again."""

_SOON_S = 1.0  # seconds between two look-ups of a name at least


def parse_name(address: str) -> Address | None:
    """The name in `dns:host:port` or `dns:///host:port`; None for an address of one server.

    Raises:
        UsageError: the name has no host, or no port from 1 to 65535.
    """
    if not address.startswith("dns:"):
        return None
    name = address.removeprefix("dns:").removeprefix("///")
    with suppress(UsageError):
        if "/" not in name:
            return parse_address(name)
    raise UsageError(
        "address",
        found=address,
        wanted="dns:HOST:PORT, such as dns:triton.internal:8001",
        todo="name a host and its gRPC port",
    )


class Resolver:
    """DNS's addresses for one name, looked up in another thread, because nothing can end a look-up that hangs.

    `changed` is called in the thread of the look-up when the addresses differ from those before.
    """

    def __init__(
        self, name: Address, refresh_s: float, clock: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        self._name = name
        self.servers: Mapping[str, str | None] = {}
        """The addresses, each with its name for TLS: the one that was looked up."""
        self.answered = Event()  # of the latest look-up, once what it found is in place
        self.answered.set()
        self._refresh_s = refresh_s
        self._clock = clock
        self._changed = changed
        self._error: BaseException | None = None
        self._began = self._due = -math.inf
        self._lock = threading.Lock()

    def hurry(self, now: float) -> None:
        """Look the name up again soon, because a server was lost."""
        self._due = min(self._due, max(now, self._began + _SOON_S))

    def refresh(self, now: float) -> None:
        """Begin a look-up if one is due and none is under way."""
        if now < self._due:
            return
        with self._lock:
            if not self.answered.is_set or now < self._due:
                return
            self._began, self._due = now, now + self._refresh_s
            self.answered = Event()
        try:
            look_up(self._name.host, self._name.port).add_done_callback(self._looked_up)
        except BaseException:  # interrupted: the next call begins another
            self.answered.set()
            raise

    def _looked_up(self, done: Future[list[Place]]) -> None:
        """Take the result of the look-up; after a failure the known addresses stay."""
        self._error = done.exception()
        # Each once, in a stable order: DNS turns its answers round.
        addresses = sorted(set(map(_address, done.result()))) if self._error is None else ()
        servers = dict.fromkeys(addresses, self._name.host)
        if not servers:
            self.hurry(self._clock())
        elif servers != self.servers:
            self.servers = servers
            try:
                self._changed()
            except Exception as error:  # no transport for it: the next call raises it
                self.servers, self._error = {}, error
        self.answered.set()

    def failure(self) -> TritonkitError:
        """The reason why the name has no server."""
        where = f"dns:{self._name.target}"
        if isinstance(self._error, TritonkitError):
            return self._error
        if not self.answered.is_set and self._error is None:
            return DeadlineExceeded(
                where,
                found="the name was not resolved: no answer from DNS in time",
                todo="allow more time with timeout_s, or see why this machine's DNS is slow",
                unprocessed=True,
            )
        reason = self._error.strerror if isinstance(self._error, OSError) else self._error
        return ServerUnavailable(
            where,
            found=f"the name was not resolved: {reason or 'no answer from DNS in time'}",
            todo="check the name, and that this machine's DNS knows it",
        )


def _address(place: Place) -> str:
    host, port, *rest = place[4]
    if rest and rest[1] and "%" not in host:  # IPv6, of one network interface
        host = f"{host}%{rest[1]}"
    return Address(host, port, tls=False).target
