"""The servers of a run: a connection to each, made again if it was lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from tritonkit.client.wire.http2 import PolledConnection
from tritonkit.errors import ServerUnavailable

__all__ = ["Servers"]

_CONNECT_S: Final = 2.0
_AGAIN_S: Final = 0.25
"""Seconds before a server that could not be reached is tried again."""
_GONE_S: Final = 5.0
"""Seconds without any reachable server after which the run ends."""


class Servers:
    """Connections to servers, by their places.

    Args:
        addresses: the servers' addresses.

    Raises:
        ServerUnavailable: a server cannot be reached.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._connections: list[PolledConnection | None] = [
            PolledConnection(address, time.monotonic() + _CONNECT_S) for address in addresses
        ]
        self._retry_at = [0.0] * len(addresses)
        self._gone_since: float | None = None
        self._leaving: list[PolledConnection] = []
        """Connections that take no new calls and still have some."""
        self.gone = ""
        """The reason why the run is over: no server could be reached for long; empty while it goes on."""

    def __len__(self) -> int:
        return len(self._addresses)

    def there(self) -> list[PolledConnection]:
        """All connections, also those that take no new calls."""
        return [*filter(None, self._connections), *self._leaving]

    def not_there(self, at: int) -> str:
        """The message of a request that has no server."""
        return f"ServerUnavailable: {self._addresses[at]}: not there"

    def connection(self, at: int, now: float) -> PolledConnection | None:
        """The connection to a server; a new one is tried now and then."""
        connection = self._connections[at]
        return connection if connection is not None else self._connected(at, now)

    def leave(self, connection: PolledConnection, now: float) -> None:
        """Take a connection that the server closes, or has lost, out of use once its calls have ended."""
        if connection in self._connections:
            at = self._connections.index(connection)
            self._connections[at] = None
            self._retry_at[at] = now
            self._leaving.append(connection)
        if connection.lost or not connection.under_way:
            self._leaving.remove(connection)
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self.there():
            connection.close()

    def _connected(self, at: int, now: float) -> PolledConnection | None:
        if now < self._retry_at[at]:
            return None
        try:
            made = PolledConnection(self._addresses[at], now + _AGAIN_S)
        except ServerUnavailable as error:
            self._retry_at[at] = time.monotonic() + _AGAIN_S
            self._gone_since = self._gone_since or now
            if now - self._gone_since > _GONE_S and not any(self._connections):
                self.gone = self.gone or f"{error.where}: {error.found}"
            return None
        self._gone_since = None
        self._connections[at] = made
        return made
