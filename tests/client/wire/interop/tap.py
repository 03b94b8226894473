"""A TCP relay that keeps what a server said, connection by connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from hyperframe.frame import Frame

__all__ = ["Tap", "frames_in", "tapped"]


class Tap:
    """What came of the server.

    Args:
        backend: `host:port` to relay to.
    """

    def __init__(self, backend: str) -> None:
        host, _, port = backend.rpartition(":")
        self._backend = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.written: list[bytearray] = []
        """The server's bytes, one entry a connection."""
        self.ended = 0
        """Connections that the server has closed."""
        threading.Thread(target=self._accept, daemon=True).start()

    def frames(self) -> list[list[Frame]]:
        """The server's whole frames of each connection."""
        return [frames_in(bytes(data)) for data in self.written]

    def count(self, kind: str, flag: str = "") -> int:
        """How many frames of a kind came, of those with a flag if one is named."""
        all_frames = [frame for frames in self.frames() for frame in frames]
        return sum(type(f).__name__ == f"{kind}Frame" and (not flag or flag in f.flags) for f in all_frames)

    def close(self) -> None:
        """End every connection."""
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._backend)
                record = bytearray()
                self.written.append(record)
                self._open += [client, server]
                for ends in ((client, server, None), (server, client, record)):
                    threading.Thread(target=self._relay, args=ends, daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket, record: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if record is not None:
                    record += data
                sink.sendall(data)
        self.ended += record is not None
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def frames_in(data: bytes) -> list[Frame]:
    """The whole frames at the start of these bytes."""
    frames, view = [], memoryview(data)
    while len(view) >= 9:
        frame, size = Frame.parse_frame_header(view[:9])
        if len(view) < 9 + size:
            break
        frame.parse_body(view[9 : 9 + size])
        frames.append(frame)
        view = view[9 + size :]
    return frames


@contextlib.contextmanager
def tapped(address: str) -> Iterator[Tap]:
    """A relay to that address."""
    tap = Tap(address)
    try:
        yield tap
    finally:
        tap.close()
