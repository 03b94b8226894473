"""Bytes over one connected socket that threads share: sent without waiting by any, read by one at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import ssl

__all__ = ["SLICE_S", "SocketIO", "TCPState", "TLSLayer", "tcp_state"]

SLICE_S: Final = 0.1
"""Seconds that a read sleeps at most: another time limit for the socket costs more than waking."""

_CHUNK: Final = 64 * 2**10
_PIECES: Final = 512
"""Pieces of one write; the system's own limit is 1024."""

_Out = list[bytes | memoryview]


class SocketIO:
    """A connected socket, and TLS over it if it is spoken; methods raise `OSError` when the connection is lost."""

    def __init__(self, sock: socket.socket, tls: TLSLayer | None) -> None:
        self._sock, self._tls = sock, tls
        self._limit_s = 0.0
        # gevent's sockets wait in their own loop, also with MSG_DONTWAIT, and know no SO_RCVTIMEO.
        self._gevent = not type(sock).__module__.startswith("socket")
        sock.settimeout(0.0 if self._gevent else None)
        self._wakeup: tuple[socket.socket, socket.socket] | None = None
        self.unsent: _Out = []
        """Bytes that the socket had no room for; only the thread that sends changes this."""

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self._sock.fileno()

    @property
    def sock(self) -> socket.socket:
        """The system's socket."""
        return self._sock

    def pending(self) -> bool:
        """Whether there is something to send that came from no caller."""
        return bool(self.unsent) or (self._tls is not None and self._tls.pending)

    def send(self, out: _Out) -> bool:
        """Send what was left before and these pieces; False if the socket has no room for all."""
        if self._tls is not None:
            out = [self._tls.encrypt(out)]
        if self.unsent:
            out = self.unsent + out
            self.unsent = []
        try:
            while out:
                if len(out) == 1:
                    piece = out[0]
                    size = self._sock.send(piece, socket.MSG_DONTWAIT)
                    if type(piece) is bytes and size == len(piece):  # the usual case
                        return True
                else:
                    size = self._sock.sendmsg(out[:_PIECES], (), socket.MSG_DONTWAIT)
                out = _without(out, size)
        except BlockingIOError:
            self.unsent = out
            return False
        return True

    def wait_writable(self, left: float) -> None:
        """Wait until the socket takes more."""
        poll = select.poll()
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile: the calls know
            poll.register(self._sock, select.POLLOUT)
            poll.poll(min(left, SLICE_S) * 1000)

    def receive(self, left: float, listening: bool = False) -> bytes | None:
        """Bytes of the peer, b"" at their end; None if none came for a while.

        Args:
            left: seconds to wait at most; it may be less.
            listening: whether `wake_reader` ends the wait.
        """
        if left <= 0:
            return self._read(socket.MSG_DONTWAIT)
        must_ask = listening or self.unsent or self._gevent
        if must_ask and not self._readable(left, listening):
            return None
        limit_s = SLICE_S if left > SLICE_S else left
        if limit_s != self._limit_s and not self._gevent:
            self._limit_s = limit_s
            # At least a millisecond: none at all would mean for ever.
            micro = max(int(limit_s * 1_000_000), 1000)
            limit = struct.pack("ll", *divmod(micro, 1_000_000))
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        return self._read(0)

    def enable_wakeup(self) -> None:
        """Get ready for `wake_reader`."""
        if self._wakeup is None:
            ends = socket.socketpair()
            for end in ends:
                end.setblocking(False)
            self._wakeup = ends

    def wake_reader(self) -> None:
        """End the wait of the thread that reads, if it listens."""
        if self._wakeup is not None:
            with contextlib.suppress(OSError):
                self._wakeup[1].send(b"!")

    def shut(self) -> None:
        """End every wait on the socket, in any thread."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket; no other thread may be using it."""
        self._sock.close()
        for end in self._wakeup or ():
            end.close()

    def _read(self, flags: int) -> bytes | None:
        try:
            data = self._sock.recv(_CHUNK, flags)
        except BlockingIOError:
            return None
        if self._tls is None or not data:
            return data
        return self._tls.decrypt(data) or None

    def _readable(self, left: float, listening: bool) -> bool:
        """Whether there is something to read, after waiting for that, for room and for `wake_reader`."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | (select.POLLOUT if self.unsent else 0))
        wakeup = self._wakeup[0] if listening and self._wakeup is not None else None
        if wakeup is not None:
            poll.register(wakeup, select.POLLIN)
        ready = dict(poll.poll(min(left, SLICE_S) * 1000))
        if wakeup is not None and wakeup.fileno() in ready:
            wakeup.recv(_CHUNK)
        return bool(ready.get(self._sock.fileno(), 0) & ~select.POLLOUT)


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
            data = sock.recv(_CHUNK)
            if not data:
                raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self._incoming.write(data)
        if self._tls.selected_alpn_protocol() not in ("h2", None):
            raise OSError(0, "TLS speaks another protocol than HTTP/2 there")

    def encrypt(self, pieces: Iterable[bytes | memoryview]) -> bytes:
        """The encrypted bytes of these pieces."""
        with self._lock:
            for piece in pieces:
                while piece:
                    piece = piece[self._tls.write(piece) :]
            return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """The decrypted bytes; TLS's own answers to them go out with the next `encrypt`, see `pending`."""
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


class TCPState(NamedTuple):
    """The system's report about a connection; zeros if there is none.

    Attributes:
        acknowledged: bytes that have reached the peer's system.
        round_trip_s: seconds.
        unanswered: retransmissions, or probes of an idle peer, since the last sign of the peer.
    """

    acknowledged: int = 0
    round_trip_s: float = 0.0
    unanswered: int = 0


_TCP_INFO: Final = struct.Struct("=2xBB64xL48xQ")
"""Fields of Linux's `struct tcp_info`: retransmits, probes, round trip in microseconds, bytes acknowledged."""


def tcp_state(sock: Any) -> TCPState:
    """The system's report about this socket's connection."""
    if sys.platform != "linux" or sock is None:
        return TCPState()
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
    except OSError:  # closed meanwhile
        return TCPState()
    if len(info) < _TCP_INFO.size:
        return TCPState()
    again, probes, micro, count = _TCP_INFO.unpack(info)
    return TCPState(count, micro / 1e6, max(again, probes))


def _without(pieces: _Out, size: int) -> _Out:
    """The pieces after the first `size` bytes."""
    for at, piece in enumerate(pieces):
        length = piece.nbytes if isinstance(piece, memoryview) else len(piece)
        if size < length:
            return [memoryview(piece).cast("B")[size:], *pieces[at + 1 :]]
        size -= length
    return []
