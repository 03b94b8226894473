"""Calls over HTTP/2 for threads: see `Transport`."""

from __future__ import annotations

import os
import threading
import time

from tritonkit.errors import ServerUnavailable
from tritonkit.wire.http2.base import BaseStream, BaseTransport, until
from tritonkit.wire.http2.call import Call
from tritonkit.wire.http2.connect import connect
from tritonkit.wire.http2.connection import Connection, Draining
from tritonkit.wire.http2.socket_io import SocketIO
from tritonkit.wire.http2.status import ATTEMPTS, CANCELLED, CLOSED, STREAM, unreachable
from tritonkit.wire.http2.thread_connection import ThreadConnection
from tritonkit.wire.transport import Body, Headers, Method

__all__ = ["Http2Transport"]


class _Attempt:
    """A connection being made by one thread; others wait for it."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.failed: ServerUnavailable | None = None


class Http2Transport(BaseTransport):
    """See `BaseTransport`; threads share it, processes do not."""

    def _prepare(self) -> None:
        self._lock = threading.Lock()
        self._connection: ThreadConnection | None = None
        self._old: list[ThreadConnection] = []
        self._attempt: _Attempt | None = None

    def send(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = ()
    ) -> memoryview:
        """See `Transport.send`."""
        deadline = time.monotonic() + timeout_s
        for last in ATTEMPTS:
            connection, call = self._open_call(method, body, timeout_s, deadline, headers)
            in_time = connection.complete(call, deadline)
            if last or not call.refused:
                break
        return self._answer(call, in_time, method, body, timeout_s)

    def begin(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = ()
    ) -> _Pending:
        """See `Transport.begin`; never tried on a second connection."""
        deadline = time.monotonic() + timeout_s
        connection, call = self._open_call(method, body, timeout_s, deadline, headers)
        connection.enable_wakeup()
        return _Pending(self, connection, call, (method, body, timeout_s), deadline)

    def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _Stream:
        """See `Transport.stream`."""
        seconds = self._connect_timeout_s if timeout_s is None else timeout_s
        connection, call = self._open_call(
            STREAM, None, seconds, time.monotonic() + seconds, headers
        )
        connection.enable_wakeup()
        return _Stream(self._config, connection, call)

    def close(self) -> None:
        """Close the connection; calls under way in other threads end with an error."""
        forked = os.getpid() != self._config.pid
        if forked:  # it must not speak, and its locks may be held for ever
            self._closed = True
            for connection in self._connections():
                connection.discard()
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            connections = self._connections()
        for connection in connections:
            connection.close(CLOSED)

    # -- connections

    def _connections(self) -> list[ThreadConnection]:
        return self._old if self._connection is None else [*self._old, self._connection]

    def _open_call(
        self, method: str, body: Body | None, timeout_s: float, deadline: float, headers: Headers
    ) -> tuple[ThreadConnection, Call]:
        """The call, begun and sent."""
        size = self._checked_size(method, body, headers)
        while True:
            connection = self._usable(timeout_s, deadline)
            try:
                call = connection.start(method, body, size, deadline, headers)
            except Draining:
                continue
            if call is None:
                raise self._not_started(method, body, timeout_s)
            return connection, call

    def _usable(self, timeout_s: float, deadline: float) -> ThreadConnection:
        """A connection that takes calls."""
        if self._closed:
            raise self._config.closed()
        if os.getpid() != self._config.pid:
            raise self._config.forked()
        connection = self._connection
        if connection is not None and connection.usable():
            return connection
        while True:
            with self._lock:
                connection, attempt = self._connection, self._attempt
                if connection is not None and not connection.core.draining:
                    return connection
                mine = attempt is None
                if attempt is None:
                    attempt = self._attempt = _Attempt()
            if mine:
                return self._connect(attempt, timeout_s, deadline)
            if not attempt.over.wait(max(deadline - time.monotonic(), 0)):
                raise self._not_connected(timeout_s)
            if attempt.failed is not None:
                error = attempt.failed
                raise unreachable(error.where, error.found, error.todo, unprocessed=True)

    def _connect(self, attempt: _Attempt, timeout_s: float, deadline: float) -> ThreadConnection:
        """Make the connection that others wait for too."""
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                raise self._not_connected(timeout_s)
            core = Connection(self._config.fields(), self._limit)
            ends = connect(self._config, min(left, self._connect_timeout_s), core)
            connection = ThreadConnection(SocketIO(*ends), core)
        except ServerUnavailable as error:
            if time.monotonic() >= deadline:
                # Others may have more time than this call had.
                raise self._not_connected(timeout_s) from error
            error.unprocessed = True
            attempt.failed = error
            raise
        else:
            with self._lock:
                closed = self._closed
                past = self._connections()
                self._old = [old for old in past if old.core.calls]
                self._connection = connection
            if closed:
                connection.close(CLOSED)
            for old in past:
                old.retire()
            return connection
        finally:
            with self._lock:
                self._attempt = None
            attempt.over.set()


class _Pending:
    """See `Pending`."""

    def __init__(
        self,
        transport: Http2Transport,
        connection: ThreadConnection,
        call: Call,
        request: tuple[str, Body, float],
        deadline: float,
    ) -> None:
        self._transport, self._connection, self._call = transport, connection, call
        self._request, self._deadline = request, deadline

    def wait(self, seconds: float) -> bool:
        """See `Pending.wait`."""
        moment = min(time.monotonic() + seconds, self._deadline)
        return self._connection.wait(self._call, moment, listening=True)

    def result(self) -> memoryview:
        """See `Pending.result`."""
        in_time = self._connection.complete(self._call, self._deadline, listening=True)
        return self._transport._answer(self._call, in_time, *self._request)

    def cancel(self) -> None:
        """See `Pending.cancel`."""
        if not self._call.ended:
            self._call.problem = CANCELLED
            self._connection.cancel(self._call)


class _Stream(BaseStream[ThreadConnection]):
    """See `MessageStream`."""

    def write(self, body: Body, timeout_s: float | None = None) -> None:
        """See `MessageStream.write`; waits while the server takes no more."""
        deadline = until(timeout_s)
        size = self._checked_size(body)
        self._connection.write(self._call, body, size)
        if not self._connection.push(self._call, deadline):
            raise self._late("a message was not taken", timeout_s)

    def end(self) -> None:
        """See `MessageStream.end`."""
        self._connection.finish(self._call)

    def read(self, timeout_s: float | None = None) -> memoryview | None:
        """See `MessageStream.read`."""
        if not self._connection.wait(self._call, until(timeout_s), listening=True):
            raise self._late("no message", timeout_s)
        message = self._connection.read(self._call)
        if message is None:
            self._check_end()
        return message

    def cancel(self) -> None:
        """See `MessageStream.cancel`; the reset goes out `GRACE_S` later, unless the stream ends before."""
        self._cancel()
