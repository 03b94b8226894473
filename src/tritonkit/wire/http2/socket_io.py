"""Bytes over one connected socket: sent without waiting by any thread, read by one at a time."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from typing import Final

from tritonkit.wire.http2.tls_layer import TLSLayer

__all__ = ["SLICE_S", "SocketIO"]

SLICE_S: Final = 1.0
"""How long a read sleeps in one go: another time limit for the socket costs more than waking."""

_CHUNK: Final = 64 * 2**10
_PIECES: Final = 512
"""At most so many at once: the system's own limit is 1024."""

_Out = list[bytes | memoryview]


class SocketIO:
    """A socket, and TLS over it; its methods raise `OSError` when the connection is lost.

    Args:
        sock: connected, without a time limit.
        sealed: TLS, if it is spoken.
    """

    def __init__(self, sock: socket.socket, sealed: TLSLayer | None) -> None:
        self._sock = sock
        self._sealed = sealed
        self._limit_s = 0.0
        # gevent's sockets wait in their own loop, also with MSG_DONTWAIT, and know no SO_RCVTIMEO.
        self._gevent = not type(sock).__module__.startswith("socket")
        if self._gevent:
            sock.setblocking(False)
        self._wakeup: tuple[socket.socket, socket.socket] | None = None
        self.unsent: _Out = []
        """What the socket had no room for; only the thread that sends changes it."""

    def pending(self) -> bool:
        """Whether there is something to send that came from no caller."""
        return bool(self.unsent) or (self._sealed is not None and self._sealed.pending)

    def send(self, out: _Out) -> bool:
        """Send what was left before and these pieces; False if the socket has no room for all."""
        if self._sealed is not None:
            out = [self._sealed.encrypt(out)]
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

    def receive(self, left: float, listening: bool) -> bytes | None:
        """Bytes of the peer, b"" at their end; None if none came for a while.

        Args:
            left: seconds to wait at most; it may be less.
            listening: whether `wake_reader` ends the wait.
        """
        must_ask = listening or self.unsent or self._gevent
        if must_ask and not self._readable(left, listening):
            return None
        if self._gevent:
            return self._read(0)
        limit_s = SLICE_S if left > SLICE_S else left
        if limit_s != self._limit_s:
            self._limit_s = limit_s
            # At least a millisecond: none at all would mean for ever.
            micro = max(int(limit_s * 1_000_000), 1000)
            limit = struct.pack("ll", *divmod(micro, 1_000_000))
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        return self._read(0)

    def poll(self) -> bytes | None:
        """`receive` without waiting."""
        return self._read(socket.MSG_DONTWAIT)

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
        if self._sealed is None or not data:
            return data
        return self._sealed.decrypt(data) or None

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


def _without(pieces: _Out, size: int) -> _Out:
    """The pieces after the first `size` bytes."""
    for at, piece in enumerate(pieces):
        length = piece.nbytes if isinstance(piece, memoryview) else len(piece)
        if size < length:
            return [memoryview(piece).cast("B")[size:], *pieces[at + 1 :]]
        size -= length
    return []
