"""Calls over HTTP/2 for threads: see `Transport`."""

from __future__ import annotations

import math
import os
import threading
import time
from concurrent.futures import Future

from tritonkit.client.wire.http2.base import ATTEMPTS, HURRY_S, REACHED_S, BaseStream, BaseTransport, again, until
from tritonkit.client.wire.http2.call import Call, CallRequest
from tritonkit.client.wire.http2.connect import connect
from tritonkit.client.wire.http2.connection import Draining
from tritonkit.client.wire.http2.thread_connection import ThreadConnection
from tritonkit.client.wire.status import CANCELLED, CLOSED, STREAM
from tritonkit.client.wire.transport import Body, Elsewhere, Headers, Method
from tritonkit.errors import ServerUnavailable

__all__ = ["Http2Transport"]


class Http2Transport(BaseTransport[ThreadConnection]):
    """See `BaseTransport`; threads share it, processes do not."""

    def _prepare(self) -> None:
        self._lock = threading.Lock()
        self._attempt: _Attempt | None = None
        """A connection being made by one thread, for which others wait."""

    def send(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = (), elsewhere: Elsewhere | None = None
    ) -> memoryview:
        """See `Transport.send`."""
        request = CallRequest(self._config, method, body, timeout_s, headers, elsewhere)
        for last in ATTEMPTS:
            connection, call = self._open_call(request)
            in_time = connection.complete(call, request.deadline)
            if last or not call.refused:
                break
        return self._answer(call, in_time, request)

    def begin(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = (), elsewhere: Elsewhere | None = None
    ) -> _Pending:
        """See `Transport.begin`; never tried on a second connection."""
        request = CallRequest(self._config, method, body, timeout_s, headers, elsewhere)
        connection, call = self._open_call(request)
        sent = False
        try:
            sent = connection.push(call, request.deadline)
        finally:
            if not sent:
                connection.cancel(call)
        if not sent and not call.lost:
            raise self._not_started(request)
        connection.make_cancellable(call)
        return _Pending(self, connection, call, request)

    def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _Stream:
        """See `Transport.stream`."""
        seconds = self._connect_timeout_s if timeout_s is None else timeout_s
        connection, call = self._open_call(CallRequest(self._config, STREAM, None, seconds, headers))
        connection.make_cancellable(call)
        return _Stream(self._config, connection, call)

    def close(self) -> None:
        """Close the connection; calls under way in other threads end with an error."""
        if os.getpid() != self._config.pid:  # it must not speak, and its locks may be held for ever
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

    def _open_call(self, request: CallRequest) -> tuple[ThreadConnection, Call]:
        """The call, begun and, as far as windows allow, sent."""
        while True:
            self._check_usable()
            connection = self._connection
            if connection is None or not connection.usable():
                connection = self._connected(request)
            try:
                call = connection.start(request)
            except Draining:
                continue
            if call is None:
                raise self._not_started(request)
            return connection, call

    def _connected(self, request: CallRequest) -> ThreadConnection:
        """A connection that takes calls; of the threads that need one at the same time one makes it."""
        while True:
            self._check_usable()
            hurried = request.elsewhere is not None and request.elsewhere(False)
            with self._lock:
                connection, attempt = self._connection, self._attempt
                if connection is not None and not connection.core.draining:
                    return connection
                if attempt is None:
                    mine = self._attempt = _Attempt(hurried)
            if attempt is None:
                self._connect(mine, request)
                continue
            left = request.deadline - time.monotonic()
            try:
                most_s = HURRY_S if attempt.hurried else REACHED_S
                failed = attempt.result(min(max(left, 0), most_s if hurried else math.inf))
            except TimeoutError:
                if time.monotonic() < request.deadline:
                    raise self._not_soon() from None
                raise self._not_connected(request.timeout_s) from None
            # One that was given up early says nothing to a call that has nowhere else to go.
            if failed is not None and (hurried or not attempt.hurried):
                raise again(failed)

    def _connect(self, attempt: _Attempt, request: CallRequest) -> None:
        """Make the connection that others wait for too."""
        failed = None
        most_s = min(self._connect_timeout_s, HURRY_S) if attempt.hurried else self._connect_timeout_s
        try:
            self._make(min(request.deadline, until(most_s)), REACHED_S if attempt.hurried else math.inf)
        except ServerUnavailable as error:
            if time.monotonic() >= request.deadline:
                # Others may have more time than this call had.
                raise self._not_connected(request.timeout_s) from error
            failed = error
            raise
        finally:
            with self._lock:
                self._attempt = None
            attempt.set_result(failed)

    def _make(self, deadline: float, reached_s: float) -> None:
        connection = ThreadConnection(connect(self._config, deadline, reached_s), self._new_core())
        try:
            connection.flush()
            connection.wait(connection.core.greeted, deadline)
            with self._lock:
                self._install(connection)
        except BaseException:
            connection.close("it was never of use")
            raise
        if self._closed:
            connection.close(CLOSED)


class _Attempt(Future["ServerUnavailable | None"]):
    """A connection being made: why that failed; `hurried` if another server can take the calls that wait for it."""

    def __init__(self, hurried: bool) -> None:
        super().__init__()
        self.hurried = hurried


class _Pending:
    """See `Pending`."""

    def __init__(
        self, transport: Http2Transport, connection: ThreadConnection, call: Call, request: CallRequest
    ) -> None:
        self._transport, self._connection, self._call, self._request = transport, connection, call, request

    def wait(self, seconds: float) -> bool:
        """See `Pending.wait`."""
        moment = min(time.monotonic() + seconds, self._request.deadline)
        return self._connection.wait(self._call, moment)

    def result(self) -> memoryview:
        """See `Pending.result`."""
        in_time = self._connection.complete(self._call, self._request.deadline)
        return self._transport._answer(self._call, in_time, self._request)

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
        if not self._connection.wait(self._call, until(timeout_s)):
            raise self._late("no message", timeout_s)
        message = self._connection.read(self._call)
        if message is None:
            self._check_end()
        return message

    def cancel(self) -> None:
        """See `MessageStream.cancel`; the reset goes out `GRACE_S` later, unless the stream ends before."""
        self._cancel()
