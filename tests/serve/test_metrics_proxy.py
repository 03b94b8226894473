"""The proxy to Triton's metrics, before a stand-in with a long answer."""

from __future__ import annotations

import contextlib
import http.server
import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import eventually
from tritonkit.serve.core import metrics
from tritonkit.serve.core.flags import METRICS_SOCKET
from tritonkit.serve.core.metrics import MetricsProxy

LENGTH = 16 << 20
"""More than the system keeps for a caller that does not read."""


class _Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(LENGTH))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(bytes(LENGTH))

    def address_string(self) -> str:
        return "proxy"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[MetricsProxy]:
    """A proxy before the stand-in."""
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / METRICS_SOCKET), _Metrics) as server:
        threading.Thread(target=server.serve_forever).start()
        made = MetricsProxy("127.0.0.1", 0, tmp_path)
        made.start()
        yield made
        made.close()
        server.shutdown()


def ask(proxy: MetricsProxy) -> socket.socket:
    """A connection that has asked, and has little room for an answer."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.settimeout(20)
    peer.connect(("127.0.0.1", proxy.port))
    peer.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    return peer


def read(peer: socket.socket) -> int:
    """Number of bytes until the end of the connection."""
    count = 0
    with contextlib.suppress(ConnectionResetError):
        while part := peer.recv(1 << 16):
            count += len(part)
    return count


def test_an_answer_comes_whole(proxy: MetricsProxy) -> None:
    """However long it is, to a caller that reads."""
    with ask(proxy) as peer:
        assert read(peer) > LENGTH


def test_an_answer_that_nobody_reads_is_dropped(proxy: MetricsProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time the connection is reset, and nothing is kept for whenever its caller may read."""
    monkeypatch.setattr(metrics, "_ANSWER_S", 0.5)
    with ask(proxy) as peer:
        poll = select.poll()
        poll.register(peer, select.POLLRDHUP)
        eventually(lambda: poll.poll(0), "the connection is ended")
        assert read(peer) < LENGTH
