"""The REST proxy for tests: a real Envoy, raw requests to it, and a stand-in for Triton that records."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.waiting import PATIENCE_S, eventually
from tritonkit.serve.core.rest import RestLimits, envoy_command, envoy_config, find_envoy

SOCKET = "http.sock"
JSON = "Content-Type: application/json"


@dataclass(frozen=True)
class Answer:
    """The answer to a request; status 0 if the connection was closed without one."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def error(self) -> str:
        """The text of {"error": ...}, which every refusal has."""
        return str(json.loads(self.body)["error"])


@dataclass(frozen=True)
class Proxy:
    """A running Envoy."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def memory_mib(self) -> float:
        """The memory that it uses."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def connect(self, within_s: float = PATIENCE_S) -> socket.socket:
        """A new connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=within_s)

    def send(self, data: bytes, within_s: float = PATIENCE_S) -> Answer:
        """Send these bytes on a new connection and read one answer."""
        with self.connect(within_s) as connection:
            return exchange(connection, data, method=data.split(b" ", 1)[0].decode("latin-1"))

    def ask(self, method: str, path: str, *headers: str, body: bytes | None = None, host: str = "localhost") -> Answer:
        """One request of HTTP/1.1, with a Content-Length where there is a body."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return self.send(head + (body or b""))

    def infer(self, body: object, *headers: str, model: str = "m", verb: str = "infer") -> Answer:
        """POST a request; what is not bytes is written as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", f"/v2/models/{model}/{verb}", JSON, *headers, body=data)


def exchange(connection: socket.socket, data: bytes, method: str = "POST") -> Answer:
    """Send and read one answer; a peer that answers early may not read all."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(data)
    response = http.client.HTTPResponse(connection, method=method)
    try:
        response.begin()
        body = response.read()
    except (http.client.HTTPException, ConnectionError):
        return Answer(0)
    finally:
        response.close()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, body)


@contextlib.contextmanager
def open_proxy(
    project: Path,
    folder: Path,
    limits: RestLimits | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    **options: Any,
) -> Iterator[Proxy]:
    """Envoy before the socket in a folder, as `serve` starts it."""
    binary = find_envoy(project / ".venv-server")
    assert binary is not None, "make setup"
    port = free_port()
    config = envoy_config("127.0.0.1", port, SOCKET, limits or RestLimits(), hosts, origins, **options)
    (folder / "proxy.json").write_text(json.dumps(config))
    log = folder / "proxy.log"
    with log.open("wb") as opened:
        process = subprocess.Popen(envoy_command(binary, "proxy.json"), cwd=folder, stderr=opened)
    proxy = Proxy(port, process, log)
    try:
        _await(proxy)
        yield proxy
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        process.wait()


def _await(proxy: Proxy) -> None:
    def is_there() -> bool:
        assert proxy.process.poll() is None, proxy.log.read_text()
        with contextlib.suppress(OSError), proxy.connect():
            return True
        return False

    eventually(is_there, f"the proxy listens: {proxy.log}")


@dataclass
class Recorded:
    """A request as it reached the stand-in: its head's lines, and the body."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """One header's value; more than one of a name is a failure."""
        values = [value for key, value in self.headers if key.lower() == name]
        assert len(values) < 2
        return values[0] if values else None


class Upstream(socketserver.ThreadingUnixStreamServer):
    """Answers like Triton's front end, and keeps what it was sent."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), _Handler)
        self.may_answer = threading.Event()
        self.reset()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A proxy that was closed meanwhile is no failure of the test."""

    def reset(self) -> None:
        """Forget the past, and answer immediately."""
        self.seen: list[Recorded] = []
        self.answer = b'{"outputs":[]}'
        self.status = 200
        self.may_answer.set()


class _Handler(socketserver.StreamRequestHandler):
    server: Upstream

    def handle(self) -> None:
        """One request after the other."""
        while line := self.rfile.readline().decode("latin-1").strip():
            headers = []
            while header := self.rfile.readline().decode("latin-1").strip():
                name, _, value = header.partition(":")
                headers.append((name, value.strip()))
            recorded = Recorded(line, headers, b"")
            assert recorded.header("transfer-encoding") is None
            recorded.body = self.rfile.read(int(recorded.header("content-length") or 0))
            self.server.seen.append(recorded)
            if line.split()[1].endswith("generate_stream"):
                return self._stream()
            self.server.may_answer.wait(PATIENCE_S)
            body = self.server.answer
            self.wfile.write(b"HTTP/1.1 %d OK\r\nServer: v9\r\n" % self.server.status)
            self.wfile.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return None

    def _stream(self) -> None:
        """Send a first piece immediately, the second once it is allowed."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        self.server.may_answer.wait(PATIENCE_S)
        self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")


@contextlib.contextmanager
def upstream_in(folder: Path) -> Iterator[Upstream]:
    """The stand-in, on the socket in a folder."""
    server = Upstream(folder / SOCKET)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()
        (folder / SOCKET).unlink(missing_ok=True)
