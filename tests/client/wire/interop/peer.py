"""A server's side of HTTP/2 by the library h2, which can be made to do what no real server does."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes, Settings

__all__ = ["Peer", "Script", "playing", "prefixed"]

Fields = Sequence[tuple[str, str]]
START: Fields = ((":status", "200"), ("content-type", "application/grpc"))
_SETTINGS: dict[int, int] = {SettingCodes.MAX_CONCURRENT_STREAMS: 100, SettingCodes.MAX_HEADER_LIST_SIZE: 65_536}
OK: Fields = (("grpc-status", "0"),)


def prefixed(message: bytes, compressed: int = 0) -> bytes:
    """A message as gRPC sends it."""
    return struct.pack(">BL", compressed, len(message)) + message


class Peer:
    """One accepted connection.

    Args:
        sock: accepted.
        settings: beside h2's own, told before anything else.
    """

    def __init__(self, sock: socket.socket, settings: dict[int, int]) -> None:
        self.sock = sock
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.local_settings = Settings(client=False, initial_values=_SETTINGS | settings)  # type: ignore[arg-type]
        self.credit = True
        """Whether what came is given back to the windows, byte for byte."""
        self.bodies: dict[int, bytearray] = {}
        self.headers: dict[int, dict[str, str]] = {}
        self.resets: list[int] = []
        self._events: list[Event] = []
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        """Send what h2 has to say."""
        self.sock.sendall(self.h2.data_to_send())

    def event(self) -> Event:
        """The next event; `ConnectionError` at the end."""
        while not self._events:
            data = self.sock.recv(65_536)
            if not data:
                raise ConnectionError
            self._events += self.h2.receive_data(data)
            self.flush()
        event = self._events.pop(0)
        if isinstance(event, RequestReceived):
            self.headers[event.stream_id] = {str(k): str(v) for k, v in event.headers}
            self.bodies[event.stream_id] = bytearray()
        elif isinstance(event, DataReceived):
            self.bodies[event.stream_id] += event.data
            if self.credit and event.stream_ended is None:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                self.flush()
        elif isinstance(event, StreamReset):
            self.resets.append(event.stream_id)
        return event

    def until(self, kind: type[Event]) -> Event:
        """The next event of a kind."""
        while not isinstance(event := self.event(), kind):
            pass
        return event

    def request(self) -> int:
        """Read until a request is whole; its stream."""
        stream: int = self.until(StreamEnded).stream_id  # type: ignore[attr-defined]
        return stream

    def answer(self, stream: int, message: bytes = b"", trailers: Fields = OK) -> None:
        """A whole answer, as far as the client's windows let it."""
        self.h2.send_headers(stream, START)
        self.h2.send_data(stream, prefixed(message))
        self.h2.send_headers(stream, trailers, end_stream=True)
        self.flush()

    def serve(self) -> None:
        """Answer every request with an empty message."""
        while True:
            self.answer(self.request())


Script = Callable[[Peer], None]


@contextlib.contextmanager
def playing(script: Script, settings: dict[int, int] | None = None) -> Iterator[str]:
    """Run a script for each connection; gives the address. What a script raises is raised at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    sockets, threads = [listener], []
    failed: list[Exception] = []

    def serve(sock: socket.socket) -> None:
        with sock:
            try:
                script(Peer(sock, settings or {}))
            except OSError:  # the end of the connection
                pass
            except Exception as error:
                failed.append(error)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                sock.settimeout(60)
                sockets.append(sock)
                threads.append(threading.Thread(target=serve, args=(sock,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        accepting.join(60)
        for thread in threads:
            thread.join(60)
        if failed:
            raise failed[0]
