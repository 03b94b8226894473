"""HTTP/2's two transports, and a peer that can be made to misbehave."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import hpack
import pytest

from tests.client.wire.kinds import HTTP2, Connect, connecting
from tritonkit.client.wire.http2 import frames


@pytest.fixture(params=HTTP2)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make a transport, of threads or of tasks; it is closed at the end."""
    with connecting(HTTP2[request.param]) as connect:
        yield connect


class Peer:
    """One accepted connection, spoken to in frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.kept = b""
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()

    def read(self, size: int) -> bytes:
        """Exactly this many bytes; `ConnectionError` at the end."""
        while len(self.kept) < size:
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError
            self.kept += data
        data, self.kept = self.kept[:size], self.kept[size:]
        return data

    def frame(self) -> tuple[int, int, int, bytes]:
        """The next frame: kind, flags, stream, payload."""
        high, low, kind, flags, stream = frames.HEAD.unpack(self.read(9))
        return kind, flags, stream, self.read(high << 16 | low)

    def until(self, kind: int) -> tuple[int, int, bytes]:
        """The next frame of a kind: flags, stream, payload."""
        while True:
            received, flags, stream, payload = self.frame()
            if received == kind:
                return flags, stream, payload

    def send(self, data: bytes) -> None:
        """Any bytes."""
        self.sock.sendall(data)

    def greet(self, settings: dict[int, int] | None = None) -> None:
        """Preface and SETTINGS, as every connection begins."""
        assert self.read(len(frames.PREFACE)) == frames.PREFACE
        self.send(frames.settings(settings or {}))

    def request(self) -> int:
        """Read until a request is whole; its stream."""
        while True:
            kind, flags, stream, _ = self.frame()
            if kind in (frames.DATA, frames.HEADERS) and flags & frames.END_STREAM:
                return stream

    def headers(self, stream: int, ends: bool = False, **fields: str) -> bytes:
        """A HEADERS frame; underscores in names become hyphens, `status` is HTTP's."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        if "status" in named:
            named = {":status": named.pop("status"), **named}
        block = self.encoder.encode(list(named.items()))
        flags = frames.END_HEADERS | (frames.END_STREAM if ends else 0)
        return frames.frame(frames.HEADERS, flags, stream, block)

    def answer(self, stream: int, message: bytes = b"", status: int = 0) -> bytes:
        """The frames of a whole answer."""
        return (
            self.headers(stream, status="200", content_type="application/grpc")
            + frames.frame(frames.DATA, 0, stream, prefixed(message))
            + self.headers(stream, ends=True, grpc_status=str(status))
        )


def prefixed(message: bytes, flag: int = 0) -> bytes:
    """A message as gRPC sends it."""
    return struct.pack(">BL", flag, len(message)) + message


Script = Callable[[Peer, int], None]


@pytest.fixture
def play() -> Iterator[Callable[[Script], str]]:
    """Start a peer that runs a script for each connection, numbered from 0; gives its address."""
    sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []
    over = threading.Event()

    def serve(sock: socket.socket, number: int, script: Script) -> None:
        with sock, contextlib.suppress(OSError):  # also ConnectionError: the end
            script(Peer(sock), number)

    def accept(listener: socket.socket, script: Script) -> None:
        number = 0
        while not over.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.settimeout(10)
            sockets.append(sock)
            threads.append(threading.Thread(target=serve, args=(sock, number, script)))
            threads[-1].start()
            number += 1

    def playing(script: Script) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)
        threads.append(threading.Thread(target=accept, args=(listener, script)))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield playing
    over.set()
    for sock in sockets:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
    for thread in threads:
        thread.join(15)
