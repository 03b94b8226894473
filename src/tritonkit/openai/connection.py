"""Connections without a request yet, few and short because no key was checked, and those whose callers stop reading
their answers."""

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
"""Seconds in which the head of a request must come, and as many before that for the TLS handshake."""
UNREAD_S = 30.0
"""Seconds in which a caller must read some of the bytes that wait for it."""
MOST = 1024
"""Most concurrent connections, if this process may open as many files."""
MOST_HANDSHAKES = 128
"""Most concurrent connections in the TLS handshake."""
BACKLOG = 256
"""Connections that wait to be accepted; asyncio accepts all of them before it hands the first one over."""
_OTHER_FILES = 128 + 2 * BACKLOG
"""Files of the process itself, of connections to Triton, and of connections that are not handed over or closed yet."""


def allow_connections(more: int = 0) -> int:
    """The number of connections to allow, after raising this process's limit of open files as far as possible.

    Args:
        more: files needed in addition to the connections'.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = _OTHER_FILES + more
    needed = MOST + others
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft - others))


class BoundedProtocol(H11Protocol):  # type: ignore[misc, unused-ignore]
    """HTTP/1.1 that closes two kinds of connections: those without a whole head in time, which uvicorn closes only
    between two requests, and those whose caller reads nothing, for which uvicorn would wait.

    It does TLS itself, because uvicorn learns of a connection only after its handshake and could not count it before.
    """

    most = MOST
    """Most concurrent connections; one more is closed immediately."""
    certificate: ServedCertificate | None = None
    """The server's certificate; None: no TLS."""
    handshakes: ClassVar[dict[BoundedProtocol, asyncio.Task[None]]] = {}
    """Connections that have not been handed to uvicorn yet."""
    _head: asyncio.TimerHandle | None = None
    _early: bytearray | None = None
    """Bytes that came before uvicorn had the connection; None once it has it."""

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and wait for TLS and a request."""
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
        except OSError:  # it did not speak TLS, rejected ours, or was too slow
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
        # The kernel ends it, also if uvicorn has written and closed: tcp(7).
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_S * 1000))
        if len(self.connections) > self.most:
            transport.close()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Stop the timer once the head is whole."""
        if self._early is not None:
            self._early += data
            return
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
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
            self.transport.abort()  # else TLS would wait for the peer's close
