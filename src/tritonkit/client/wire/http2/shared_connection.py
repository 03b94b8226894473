"""The common part of connections shared by threads and by tasks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, Final

from tritonkit.client.wire.http2.call import Call, CallRequest, Waiter
from tritonkit.client.wire.http2.connection import Connection
from tritonkit.client.wire.http2.keepalive import Keepalive
from tritonkit.client.wire.http2.socket_io import tcp_state

__all__ = ["ENDED", "PUSHED", "SILENT", "SharedConnection"]

PUSHED: Final = 2**20
"""Bytes that a call sends before others have their turn."""
ENDED: Final = "the server closed the connection"
SILENT: Final = "the connection was lost: the server went silent"
SLICE_S: Final = 0.1
"""Seconds between two checks of a silent peer while another server can take over its calls."""
ASKED_S: Final = 0.05
"""Seconds between two checks after the peer got a PING."""
UNANSWERED: Final = 2
"""After this many TCP retransmissions the peer counts as gone, even when PINGs are no longer allowed."""
_FRESH_S: Final = 0.01
"""A connection idle for less is not checked before its next use."""
_LONG_IDLE_S: Final = 1.0
"""Seconds of idleness after which the time for keepalive starts with the next call."""


class SharedConnection(ABC):
    """A connection that several callers use; `core` reads and writes its frames."""

    def __init__(self, core: Connection) -> None:
        self.core = core
        self._used = time.monotonic()
        self._keepalive = Keepalive(self._used)
        self._quick = False
        """Whether there ever was a call that another server can take over."""

    @abstractmethod
    def cancel(self, call: Call) -> None:
        """Give the call up, unless it has ended: see `Connection.cancel`."""

    @abstractmethod
    def close(self, why: str) -> None:
        """Close the connection; calls under way end, with the reason."""

    @abstractmethod
    def _socket_of(self) -> Any:
        """The system's socket."""

    def finished(self, call: Call) -> None:
        """Clean up after each call: cancel it if its answer was refused halfway or has not come."""
        if call.ended:
            self._used = time.monotonic()
            self.retire()
        else:
            self.cancel(call)

    def retire(self) -> None:
        """Close the connection if it takes no calls and has none."""
        if self.core.draining and not self.core.calls:
            self.close(self.core.draining)

    def _is_stale(self) -> bool:
        """Whether the connection was idle long enough to be checked before its next use."""
        return not self.core.draining and time.monotonic() - self._used > _FRESH_S

    def _look_after(self, now: float, until: float) -> tuple[list[Waiter], list[Call]]:
        """Send a silent peer a PING; return the waiters to wake, and calls that may go elsewhere.

        Args:
            now: the moment.
            until: the latest moment until which nothing had come; later data may not have been read.
        """
        core, keepalive = self.core, self._keepalive
        calls = core.movable() if self._quick else []
        if keepalive.ping_due(now, core.heads, bool(calls)):
            keepalive.acknowledged(now, tcp_state(self._socket_of()).acknowledged)
            core.ping()
            return [], []
        if not keepalive.pinged and (not calls or keepalive.spoke(now)):
            return [], []
        state = tcp_state(self._socket_of())
        keepalive.acknowledged(now, state.acknowledged)
        lost = keepalive.silent(until, state.round_trip_s) or state.unanswered >= UNANSWERED
        return (core.drain(SILENT), calls) if calls and lost else ([], [])

    def _open(self, request: CallRequest, queued: bool) -> Call:
        """See `Connection.open`."""
        core, now = self.core, time.monotonic()
        idle_s = now - self._used if len(core.calls) == len(core.cancelled) else 0.0
        timeout_s = None if request.body is None else max(request.deadline - now, 0.001)
        call = core.open(request.method, request.body, request.size, timeout_s, request.headers, queued)
        self._used = now
        if request.elsewhere is not None:
            call.elsewhere = request.elsewhere
            self._quick = True
        if idle_s:
            self._keepalive.began = now
        if idle_s > _LONG_IDLE_S:
            self._keepalive.heard(now)
        return call
