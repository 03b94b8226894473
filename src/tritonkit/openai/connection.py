"""Connections that are no request yet: few and short, because no key has been looked at; and those whose callers stop
reading their answers."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from tritonkit.openai.certificate import ServedCertificate

__all__ = ["BACKLOG", "MOST_HANDSHAKES", "BoundedProtocol", "allow_connections"]

HEAD_S = 10.0
"""Seconds in which the head of a request must have come; before it, as many for TLS."""
UNREAD_S = 30.0
"""Seconds in which a caller must take something of what waits for it."""
MOST = 1024
"""Connections at a time, where this process may have so many files."""
MOST_HANDSHAKES = 128
"""Connections at a time that have not agreed on TLS yet."""
BACKLOG = 256
"""Connections that wait to be accepted; asyncio accepts all of them before it hands the first one over."""
_OTHER_FILES = 128 + 2 * BACKLOG
"""Those of the process itself, of connections to Triton, and of connections that are not handed over or closed yet."""


def allow_connections(more: int = 0) -> int:
    """How many connections there may be, once this process may have as many open files as it can get for them.

    Args:
        more: files that it needs beside these.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = _OTHER_FILES + more
    wanted = MOST + others
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft - others))


class BoundedProtocol(H11Protocol):  # type: ignore[misc, unused-ignore]
    """HTTP/1.1 that closes a connection without a whole head in time, which uvicorn does only between two requests, and
    one whose caller reads nothing, which uvicorn would wait for.

    It does TLS itself, because uvicorn learns of a connection only after its handshake: until then nobody counted it.
    """

    most = MOST
    """Connections at a time: one more is closed at once."""
    certificate: ServedCertificate | None = None
    """What callers are shown; None: no TLS."""
    handshakes: ClassVar[dict[BoundedProtocol, asyncio.Task[None]]] = {}
    """Connections that are none of uvicorn's yet."""
    _head: asyncio.TimerHandle | None = None
    _early: bytearray | None = None
    """What came before uvicorn had the connection; None once it has it."""

    def connection_made(self, transport: Any) -> None:
        """Count it, and wait for TLS and a request."""
        if self.certificate is None:
            self._begin(transport)
        elif len(self.handshakes) >= MOST_HANDSHAKES:
            self._early = bytearray()
            transport.abort()
        else:
            self._early = bytearray()
            transport.pause_reading()
            work = self._secure(transport, self.certificate.context())
            self.handshakes[self] = self.loop.create_task(work)

    async def _secure(self, transport: Any, context: ssl.SSLContext) -> None:
        try:
            secure = await self.loop.start_tls(transport, self, context, server_side=True, ssl_handshake_timeout=HEAD_S)
        except OSError:  # it did not speak TLS, did not like ours, or was too slow
            return
        finally:
            self.handshakes.pop(self, None)
        early, self._early = self._early, None
        if secure is None:  # it has left
            return
        self._begin(secure)
        if early:
            self.data_received(bytes(early))

    def _begin(self, transport: Any) -> None:
        super().connection_made(transport)
        # The kernel ends it, also where uvicorn has written and closed: tcp(7).
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_S * 1000))
        if len(self.connections) > self.most:
            transport.close()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Wait no longer where the head is whole."""
        if self._early is not None:
            self._early += data
            return
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        if self._early is not None:
            return
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_S, self._close)

    def _stop(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _close(self) -> None:
        self._head = None
        if self.certificate is None:
            self.transport.close()
        else:
            self.transport.abort()  # else TLS would wait for the other side's farewell
