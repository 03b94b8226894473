"""One connection for a loop that polls its sockets: nothing here waits or takes a lock."""

from __future__ import annotations

import time
from typing import Final

from tritonkit.client.wire.channel import ChannelConfig
from tritonkit.client.wire.http2.call import Call, Waiter
from tritonkit.client.wire.http2.connect import connect, reason
from tritonkit.client.wire.http2.connection import Connection, Draining
from tritonkit.client.wire.http2.ending import error_of
from tritonkit.client.wire.http2.headers import RequestHeaders
from tritonkit.client.wire.http2.shared_connection import ENDED, PUSHED
from tritonkit.client.wire.status import STREAM, unreachable
from tritonkit.client.wire.transport import Body, Headers, Method, body_size
from tritonkit.errors import ClientError

__all__ = ["PolledConnection"]

_GREETING_S: Final = 0.05


class PolledConnection:
    """A connection that is made by the constructor; deadlines are `time.monotonic()` moments.

    Args:
        address: `host:port` or `grpc://host:port`.
        deadline: the moment by which the connection must be made.

    Raises:
        UsageError: the address is invalid.
        ServerUnavailable: no HTTP/2 server answered there by the deadline.
    """

    def __init__(self, address: str, deadline: float) -> None:
        self._config = ChannelConfig(address, (), None, None, None, False)
        self._core = Connection(RequestHeaders.of(self._config))
        self._socket = connect(self._config, deadline)
        self._unfinished: dict[Call, None] = {}
        self._woken: list[Waiter] = []
        self.flush()
        while not self._core.greeted.ready and time.monotonic() < deadline:
            self._receive(_GREETING_S)
        if not self._core.greeted.ready or self._core.lost:
            self.close()
            problem = f"no HTTP/2 connection: {self._core.lost or 'no answer in time'}"
            raise unreachable(self._config.name, problem, unprocessed=True)

    def fileno(self) -> int:
        """The socket's file descriptor, to wait for."""
        return self._socket.fileno()

    @property
    def address(self) -> str:
        """The server's `host:port`."""
        return self._config.name

    @property
    def leaving(self) -> str:
        """The reason why no new call can begin, or empty; calls under way may still be answered unless it is `lost`."""
        return self._core.lost or self._core.draining

    @property
    def lost(self) -> str:
        """The reason why the connection is lost and all its calls have ended, or empty."""
        return self._core.lost

    @property
    def under_way(self) -> int:
        """Calls that have no end yet."""
        return len(self._core.calls)

    @property
    def blocked(self) -> bool:
        """Whether the socket has no room for more bytes."""
        return bool(self._socket.unsent)

    def full(self) -> bool:
        """Whether the server takes no further call before one has ended."""
        return self._core.full()

    def begin(self, method: Method, body: Body, timeout_s: float) -> Call:
        """Begin a call; `flush` sends it.

        Raises:
            ServerUnavailable: the connection takes no new call.
        """
        try:
            call = self._core.open(method, body, body_size(body), timeout_s)
        except Draining:
            raise unreachable(self._config.name, self.leaving, unprocessed=True) from None
        self._begun(call)
        return call

    def stream(self, body: Body, timeout_s: float, headers: Headers = ()) -> Call:
        """Begin a stream of one request; `read` gives the call when `reply` has something for it, or it has ended.

        Raises:
            ServerUnavailable: the connection takes no new call.
        """
        try:
            call = self._core.open(STREAM, None, 0, timeout_s, headers)
        except Draining:
            raise unreachable(self._config.name, self.leaving, unprocessed=True) from None
        self._core.writer.write(call, body, body_size(body))
        self._core.writer.finish(call)
        self._begun(call)
        return call

    def reply(self, call: Call) -> memoryview | None:
        """The oldest message of a stream that is not read yet, if there is one."""
        return self._core.read(call)

    def _begun(self, call: Call) -> None:
        if call.unsent_bytes:
            self._unfinished[call] = None
            self._push()

    def read(self) -> list[Call]:
        """Read some of the bytes that have come, without waiting: calls that have ended, and streams with replies."""
        self._receive(0.0)
        woken, self._woken = self._woken, []
        return [call for call in woken if isinstance(call, Call)]

    def cancel(self, call: Call) -> None:
        """Give a call up, unless it has ended: see `reset_cancelled`."""
        self._woken += self._core.cancel(call, time.monotonic())

    def reset_cancelled(self) -> None:
        """Reset the calls that were given up a while ago and have not ended."""
        if self._core.cancelled:
            self._woken += self._core.reset_cancelled(time.monotonic())

    def flush(self) -> None:
        """Send as much as the socket accepts."""
        writer = self._core.writer
        if not (writer.out or self._socket.pending()):
            return
        out, writer.out = writer.out, []
        try:
            writer.blocked = not self._socket.send(out)
        except OSError as error:
            self._lose(error)

    def error(self, call: Call, method: str, body: Body, timeout_s: float) -> ClientError:
        """The error of a call without an answer."""
        return error_of(call, self._config, method, body, timeout_s)

    def close(self) -> None:
        """Close the connection; calls under way end."""
        self._core.fail("", 0)
        self.flush()
        self._socket.shut()
        self._socket.close()

    def _receive(self, seconds: float) -> None:
        """Take in some of the bytes that have come, waiting at most this long."""
        try:
            data = self._socket.receive(seconds)
        except OSError as error:
            self._lose(error)
            return
        if data is None:
            return
        self._woken += self._core.receive(data) if data else self._core.fail(ENDED)
        self._push()

    def _lose(self, error: OSError) -> None:
        self._woken += self._core.fail(f"the connection was lost: {reason(error)}")

    def _push(self) -> None:
        """Send as much of messages larger than the server's windows as these allow."""
        for call in list(self._unfinished):
            self._core.writer.push(call, PUSHED)
            if not call.unsent_bytes:
                del self._unfinished[call]
