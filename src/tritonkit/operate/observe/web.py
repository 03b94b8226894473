"""A page that is made anew for each request, on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tritonkit.errors import TritonkitError
from tritonkit.serve.ports import refusal

__all__ = ["HOST", "PageServer"]

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost", "[::1]")
_IDLE_S = 10.0
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


class PageServer(ThreadingHTTPServer):
    """Listens; `serve_forever` answers `GET /` with what `make` gives, one at a time, and an error as 503.

    Args:
        port: 0 takes a free one; `server_port` says which.
        make: the page.

    Raises:
        ServerStartError, UsageError: it cannot listen there.
    """

    daemon_threads = True

    def __init__(self, port: int, make: Callable[[], str]) -> None:
        self.make = make
        self.making = threading.Lock()
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise refusal(HOST, port, error) from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    timeout = _IDLE_S

    def do_GET(self) -> None:
        """The page, for callers on this machine who know it as such: a name of somebody's may lead here too."""
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
        """Nothing: what is printed is the command line's."""
