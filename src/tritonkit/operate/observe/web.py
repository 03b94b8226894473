"""A page that is rendered for each request, on loopback."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tritonkit.errors import TritonkitError
from tritonkit.serve.ports import refusal

__all__ = ["HOST", "PageServer"]

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost", "[::1]")
_CONNECTIONS = 16
"""Concurrent connections; one more is closed immediately."""
_HEAD_S = 5.0
"""Seconds for all headers of a request to come."""
_IDLE_S = 10.0
"""Seconds for the answer to be taken."""
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


class PageServer(ThreadingHTTPServer):
    """A listening server; `serve_forever` answers `GET /` with the page from `make`, made one at a time, or with 503.

    Args:
        port: the port to listen on; 0: a free one, which is then `server_port`.
        make: the function that renders the page.

    Raises:
        ServerStartError, UsageError: the server cannot listen on that port.
    """

    daemon_threads = True
    request_queue_size = _CONNECTIONS

    def __init__(self, port: int, make: Callable[[], str]) -> None:
        self.make = make
        self.making = threading.Lock()
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise refusal(HOST, port, error) from error

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{HOST}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if one is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the thread's place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore callers that have gone away; print a fault of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = _IDLE_S

    def setup(self) -> None:
        """Start the time limit for the headers, because the socket's own restarts with each byte."""
        super().setup()
        self._late = threading.Timer(_HEAD_S, self._give_up)
        self._late.daemon = True
        self._late.start()

    def parse_request(self) -> bool:
        """Read the headers; they are incomplete if the connection was given up."""
        read = super().parse_request()
        late = self._late.finished.is_set()
        self._late.cancel()
        return read and not late

    def finish(self) -> None:
        """End the connection."""
        self._late.cancel()
        super().finish()

    def _give_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Send the page if the Host header is this machine's: another DNS name may lead here too."""
        server = self.server
        assert isinstance(server, PageServer)  # noqa: S101 - made there alone
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in _NAMES:
            self._answer(HTTPStatus.FORBIDDEN, "this page is for this machine\n", "plain")
        elif self.path != "/":
            self._answer(HTTPStatus.NOT_FOUND, "there is only / here\n", "plain")
        else:
            try:
                with server.making:
                    text = server.make()
            except TritonkitError as error:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n", "plain")
            else:
                self._answer(HTTPStatus.OK, text, "html")

    def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Log nothing: only the command line prints."""
