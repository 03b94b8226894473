"""TLS between bytes of the application and bytes of a socket that threads share."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

__all__ = ["TLSLayer", "received"]

_CHUNK: Final = 64 * 2**10


class TLSLayer:
    """TLS between bytes of the application and bytes of the socket; safe between threads."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        import ssl

        self._again = ssl.SSLWantReadError
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._lock = threading.Lock()

    def handshake(self, sock: socket.socket, deadline: float) -> None:
        """Agree on keys and on HTTP/2; raises `OSError`, of which `ssl.SSLError` is one."""
        while True:
            try:
                self._tls.do_handshake()
                done = True
            except self._again:
                done = False
            finally:
                # After an error this tells the peer which.
                sock.settimeout(max(deadline - time.monotonic(), 0.001))
                sock.sendall(self._outgoing.read())
            if done:
                break
            self._incoming.write(received(sock))
        if self._tls.selected_alpn_protocol() not in ("h2", None):
            raise OSError(0, "TLS speaks another protocol than HTTP/2 there")

    def encrypt(self, pieces: Iterable[bytes | memoryview]) -> bytes:
        """What to send for these pieces."""
        with self._lock:
            for piece in pieces:
                while piece:
                    piece = piece[self._tls.write(piece) :]
            return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """What has come; TLS's own answers to it go out with the next `seal`, see `waiting`."""
        plain = []
        with self._lock:
            self._incoming.write(data)
            try:
                while more := self._tls.read(_CHUNK):
                    plain.append(more)
            except self._again:
                pass
            except OSError:
                # What came before the end counts; the end comes up again with the next call.
                if not plain:
                    raise
            return b"".join(plain)

    @property
    def pending(self) -> bool:
        """Whether TLS itself has something to send."""
        return self._outgoing.pending > 0


def received(sock: socket.socket) -> bytes:
    """What a blocking socket has for us; `OSError` at its end."""
    data = sock.recv(_CHUNK)
    if not data:
        raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    return data
