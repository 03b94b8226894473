"""The proxy to Triton's metrics. It serves GET /metrics alone, and appends the gauges that Triton lacks.

Triton's own metrics server reads a body of any length into memory before it looks at the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import struct
import threading
from pathlib import Path

from .flags import METRICS_SOCKET
from .gauges import Gauges
from .unix_http import UnixConnection

__all__ = ["MetricsProxy"]

_CONNECTIONS = 16
"""Concurrent connections; one more is closed immediately."""

_HEAD_BYTES = 16 << 10
_HEAD_S = 5.0
"""Seconds for the whole head of a request to arrive."""

_ANSWER_S = 10.0
"""Seconds for Triton to answer, and for the caller to read the answer."""


class MetricsProxy:
    """Listens on TCP and reads Triton's metrics through the socket in its folder.

    Args:
        host, port: where to listen; port 0 takes a free one.
        folder: the server's working directory, with METRICS_SOCKET.
        gauges: the gauges to append.

    Raises:
        OSError: the address cannot be used.
    """

    def __init__(self, host: str, port: int, folder: Path, gauges: Gauges | None = None) -> None:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self._listener = socket.create_server((host, port), family=family)
        self.port = int(self._listener.getsockname()[1])
        self._folder = folder
        self._gauges = gauges
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tritonkit-metrics", daemon=True)

    def start(self) -> None:
        """Answer requests in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._listen())
        finally:
            self._loop.close()

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, sock=self._listener, limit=_HEAD_BYTES)
        async with server:
            await self._stop.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request per connection; a body is never read."""
        self._connections += 1
        # A caller that sends too much, too slowly, or goes away gets no answer.
        expected = (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
        try:
            if self._connections <= _CONNECTIONS:
                with contextlib.suppress(*expected):
                    async with asyncio.timeout(_HEAD_S):
                        head = await reader.readuntil(b"\r\n\r\n")
                    async with asyncio.timeout(_ANSWER_S):
                        writer.write(await asyncio.to_thread(self._answer, head))
                        writer.close()
                        await writer.wait_closed()
        finally:
            self._connections -= 1
            _drop(writer)

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        if rest.partition(b" ")[0].partition(b"?")[0] != b"/metrics":
            return _response(404, b"there is only /metrics here\n")
        if method != b"GET":
            return _response(405, b"only GET is answered here\n")
        connection = UnixConnection(self._folder, METRICS_SOCKET, _ANSWER_S)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            body = answer.read()
            if self._gauges is not None and answer.status == http.client.OK:
                body += self._gauges.text(body.decode(errors="replace")).encode()
            return _response(answer.status, body)
        except (OSError, http.client.HTTPException):
            return _response(503, b"the server does not answer\n")
        finally:
            connection.close()


def _drop(writer: asyncio.StreamWriter) -> None:
    """End a connection, and drop the part of the answer that its caller has not read, in the system's buffers too."""
    peer = writer.get_extra_info("socket")
    if peer.fileno() >= 0:
        # Without it the connection would stay open until the caller has read everything.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _response(status: int, body: bytes) -> bytes:
    """An answer in Prometheus' text format, or a line of text for people."""
    head = (
        f"HTTP/1.1 {status} {http.client.responses.get(status, '')}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
