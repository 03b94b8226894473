"""Calls over HTTP/2 for threads: see `Transport`."""

from __future__ import annotations

import math
import os
import threading
import time

from tritonkit.errors import ClientError, ServerUnavailable
from tritonkit.wire.http2.call import LONGEST_MESSAGE, Call
from tritonkit.wire.http2.channel import ChannelConfig
from tritonkit.wire.http2.connect import connect
from tritonkit.wire.http2.connection import Connection, Draining
from tritonkit.wire.http2.frame_writer import body_size
from tritonkit.wire.http2.headers import SecretHeaders
from tritonkit.wire.http2.secure import TLS, Secret
from tritonkit.wire.http2.socket_io import SocketIO
from tritonkit.wire.http2.status import (
    ATTEMPTS,
    CANCELLED,
    CLOSED,
    STREAM,
    answer_of,
    error_of,
    not_in_time,
    place,
    too_large,
    unreachable,
)
from tritonkit.wire.http2.thread_connection import ThreadConnection
from tritonkit.wire.limits import AnswerLimit
from tritonkit.wire.transport import Body, Headers, Method

__all__ = ["Http2Transport"]


class _Attempt:
    """A connection being made by one thread; others wait for it."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.failed: ServerUnavailable | None = None


class Http2Transport:
    """One connection to one server, opened at the first call; threads share it, processes do not.

    Args:
        address: `host:port`, `grpc://host:port` or `grpcs://host:port`.
        headers: metadata of every call; values may be a `Secret`.
        tls: how to encrypt; None means not, or for grpcs:// with the system's authorities.
        admin_key: sent with calls that a server may restrict (its models, loading them).
        server_name: the host that is meant, where the address is only one of its IP addresses.
        connect_timeout_s: seconds to wait for a connection; a call may allow less.
        limit: how large answers may be; the client's own is shared by all its transports.
        allow_plaintext_credentials: whether keys and tokens may travel without TLS to a host that is
            not this one.

    Raises:
        UsageError: a bad address or header, or credentials that would be sent in plain text.
    """

    def __init__(
        self,
        address: str,
        headers: SecretHeaders = (),
        tls: TLS | None = None,
        admin_key: str | Secret | None = None,
        server_name: str | None = None,
        connect_timeout_s: float = 5.0,
        limit: AnswerLimit | None = None,
        allow_plaintext_credentials: bool = False,
    ) -> None:
        self._config = ChannelConfig(
            address, headers, tls, admin_key, server_name, allow_plaintext_credentials
        )
        self._connect_timeout_s = connect_timeout_s
        self._limit = limit or AnswerLimit()
        self._lock = threading.Lock()
        self._link: ThreadConnection | None = None
        self._old: list[ThreadConnection] = []
        self._attempt: _Attempt | None = None
        self._closed = False

    @property
    def address(self) -> str:
        """The `host:port` that is called."""
        return self._config.name

    def send(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = ()
    ) -> memoryview:
        """See `Transport.send`."""
        deadline = time.monotonic() + timeout_s
        for last in ATTEMPTS:
            link, call = self._open_call(method, body, timeout_s, deadline, headers)
            try:
                done = link.wait(call, deadline)
            except BaseException:
                link.cancel(call)
                raise
            if (answer := answer_of(call)) is not None:
                link.ended()
                return answer
            if not done:
                link.cancel(call)
                raise not_in_time(place(self.address, method, body), timeout_s)
            link.over(call)
            if last or not call.refused:
                break
        raise error_of(call, self._config, method, body, timeout_s)

    def begin(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = ()
    ) -> _Pending:
        """See `Transport.begin`; never tried on a second connection."""
        deadline = time.monotonic() + timeout_s
        link, call = self._open_call(method, body, timeout_s, deadline, headers)
        link.enable_wakeup()
        return _Pending(self._config, link, call, (method, body, timeout_s), deadline)

    def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _Stream:
        """See `Transport.stream`."""
        seconds = self._connect_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + seconds
        link, call = self._open_call(STREAM, None, seconds, deadline, headers)
        link.enable_wakeup()
        return _Stream(self._config, link, call)

    def close(self) -> None:
        """Close the connection; calls under way in other threads end with an error."""
        if os.getpid() != self._config.pid:
            self._discard()
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            links = [*self._old, self._link] if self._link is not None else self._old
        for link in links:
            link.close(CLOSED)

    def _discard(self) -> None:
        """Let go of the copies in a fork: it must not speak, and its locks may be held for ever."""
        self._closed = True
        for link in (*self._old, self._link):
            if link is not None:
                link.discard()

    # -- connections

    def _open_call(
        self,
        method: str,
        body: Body | None,
        timeout_s: float,
        deadline: float,
        headers: Headers,
    ) -> tuple[ThreadConnection, Call]:
        """The call, begun and sent."""
        size = 0 if body is None else body_size(body)
        if size > LONGEST_MESSAGE:
            raise too_large(place(self.address, method, body), size)
        if headers:
            self._config.check(headers)
        while True:
            link = self._usable(timeout_s, deadline)
            try:
                call = link.start(method, body, size, deadline, headers)
            except Draining:
                continue
            if call is None:
                what = "no answer" if body is not None else "no stream"
                raise not_in_time(place(self.address, method, body), timeout_s, what)
            return link, call

    def _usable(self, timeout_s: float, deadline: float) -> ThreadConnection:
        """A connection that takes calls."""
        if self._closed:
            raise self._config.closed()
        if os.getpid() != self._config.pid:
            raise self._config.forked()
        link = self._link
        if link is not None and link.usable():
            return link
        while True:
            with self._lock:
                link, attempt = self._link, self._attempt
                if link is not None and not link.core.draining:
                    return link
                mine = attempt is None
                if attempt is None:
                    attempt = self._attempt = _Attempt()
            if mine:
                return self._connected(attempt, timeout_s, deadline)
            if not attempt.over.wait(max(deadline - time.monotonic(), 0)):
                raise not_in_time(self.address, timeout_s, "no connection")
            if attempt.failed is not None:
                error = attempt.failed
                raise unreachable(error.where, error.found, error.todo, unprocessed=True)

    def _connected(self, attempt: _Attempt, timeout_s: float, deadline: float) -> ThreadConnection:
        """Make the connection that others wait for too."""
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                raise not_in_time(self.address, timeout_s, "no connection")
            core = Connection(self._config.fields(), self._limit)
            link = ThreadConnection(
                SocketIO(*connect(self._config, min(left, self._connect_timeout_s), core)), core
            )
        except ServerUnavailable as error:
            if time.monotonic() >= deadline:
                # Others may have more time than this call had.
                raise not_in_time(self.address, timeout_s, "no connection") from error
            error.unprocessed = True
            attempt.failed = error
            raise
        else:
            with self._lock:
                closed = self._closed
                past = self._old if self._link is None else [*self._old, self._link]
                self._old = [old for old in past if old.core.calls]
                self._link = link
            if closed:
                link.close(CLOSED)
            for old in past:
                old.retire()
            return link
        finally:
            with self._lock:
                self._attempt = None
            attempt.over.set()


class _Pending:
    """See `Pending`."""

    def __init__(
        self,
        target: ChannelConfig,
        link: ThreadConnection,
        call: Call,
        request: tuple[str, Body, float],
        deadline: float,
    ) -> None:
        self._config, self._link, self._call = target, link, call
        self._request, self._deadline = request, deadline

    def wait(self, seconds: float) -> bool:
        """See `Pending.wait`."""
        until = min(time.monotonic() + seconds, self._deadline)
        return self._link.wait(self._call, until, listening=True)

    def result(self) -> memoryview:
        """See `Pending.result`."""
        link, call = self._link, self._call
        method, body, timeout_s = self._request
        try:
            done = link.wait(call, self._deadline, listening=True)
        except BaseException:
            link.cancel(call)
            raise
        if not done:
            link.cancel(call)
            raise not_in_time(place(self._config.name, method, body), timeout_s)
        link.over(call)
        if (answer := answer_of(call)) is not None:
            return answer
        raise error_of(call, self._config, method, body, timeout_s)

    def cancel(self) -> None:
        """See `Pending.cancel`."""
        if not self._call.ended:
            self._call.problem = CANCELLED
            self._link.cancel(self._call)


class _Stream:
    """See `Stream`."""

    def __init__(self, target: ChannelConfig, link: ThreadConnection, call: Call) -> None:
        self._config, self._link, self._call = target, link, call

    def write(self, body: Body, timeout_s: float | None = None) -> None:
        """See `Stream.write`; waits while the server takes no more."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        size = body_size(body)
        if size > LONGEST_MESSAGE:
            raise too_large(self._config.name, size)
        if self._call.ended or self._call.problem:
            raise self._over()
        self._link.write(self._call, body, size)
        if not self._link.push(self._call, deadline):
            raise not_in_time(self._config.name, timeout_s or 0.0, "a message was not taken")

    def end(self) -> None:
        """See `Stream.end`."""
        self._link.finish(self._call)

    def read(self, timeout_s: float | None = None) -> memoryview | None:
        """See `Stream.read`."""
        call = self._call
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        if not self._link.wait(call, deadline, listening=True):
            raise not_in_time(self._config.name, timeout_s or 0.0, "no message")
        message = self._link.read(call)
        if message is None:
            self._link.over(call)
            if call.status != 0 or call.problem:
                raise self._over()
        return message

    def cancel(self) -> None:
        """See `Stream.cancel`; the server is told `GRACE_S` later, unless the stream ends before."""
        if not self._call.ended:
            self._call.problem = CANCELLED
            self._link.cancel(self._call)

    def _over(self) -> ClientError:
        """Why nothing more can be sent or read."""
        return error_of(self._call, self._config, STREAM, None, None)
