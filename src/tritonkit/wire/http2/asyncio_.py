"""Calls over HTTP/2 for tasks of one event loop: see `AsyncTransport`."""

from __future__ import annotations

import asyncio
import math
import os
import time

from tritonkit.errors import ClientError, ServerUnavailable, UsageError
from tritonkit.wire.http2.call import LONGEST_MESSAGE, Call
from tritonkit.wire.http2.channel import ChannelConfig
from tritonkit.wire.http2.connect import connect_async, reason, tuned, unresolved
from tritonkit.wire.http2.connection import Connection, Draining
from tritonkit.wire.http2.frame_writer import body_size
from tritonkit.wire.http2.headers import SecretHeaders
from tritonkit.wire.http2.secure import TLS, Secret
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
from tritonkit.wire.http2.task_connection import TaskConnection
from tritonkit.wire.limits import AnswerLimit
from tritonkit.wire.names import look_up_async
from tritonkit.wire.transport import Body, Headers, Method

__all__ = ["AsyncHttp2Transport"]


class AsyncHttp2Transport:
    """`Http2Transport` for the tasks of the event loop that makes the first call.

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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wire: TaskConnection | None = None
        self._old: list[TaskConnection] = []
        self._attempt: asyncio.Task[TaskConnection] | None = None
        self._closed = False

    @property
    def address(self) -> str:
        """The `host:port` that is called."""
        return self._config.name

    async def send(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = ()
    ) -> memoryview:
        """See `AsyncTransport.send`."""
        deadline = time.monotonic() + timeout_s
        for last in ATTEMPTS:
            wire, call = await self._open_call(method, body, timeout_s, deadline, headers)
            try:
                done = await wire.wait(call, deadline)
            except BaseException:
                wire.cancel(call)
                raise
            if (answer := answer_of(call)) is not None:
                wire.ended()
                return answer
            if not done:
                wire.cancel(call)
                raise not_in_time(place(self.address, method, body), timeout_s)
            wire.over(call)
            if last or not call.refused:
                break
        raise error_of(call, self._config, method, body, timeout_s)

    async def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _AsyncStream:
        """See `AsyncTransport.stream`."""
        seconds = self._connect_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + seconds
        wire, call = await self._open_call(STREAM, None, seconds, deadline, headers)
        return _AsyncStream(self._config, wire, call)

    async def close(self) -> None:
        """Close the connection; calls under way in other tasks end with an error."""
        if self._closed:
            return
        self._closed = True
        wires = [*self._old, self._wire] if self._wire is not None else self._old
        if os.getpid() != self._config.pid:
            return
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait({self._attempt})
        for wire in wires:
            wire.close(CLOSED)
        if wires:
            await wires[-1].gone()

    # -- connections

    async def _open_call(
        self,
        method: str,
        body: Body | None,
        timeout_s: float,
        deadline: float,
        headers: Headers,
    ) -> tuple[TaskConnection, Call]:
        """The call, begun and sent."""
        size = 0 if body is None else body_size(body)
        if size > LONGEST_MESSAGE:
            raise too_large(place(self.address, method, body), size)
        if headers:
            self._config.check(headers)
        while True:
            self._check()
            wire = self._wire
            if wire is None or not await wire.usable():
                wire = await self._connected(timeout_s, deadline)
            try:
                call = await wire.start(method, body, size, deadline, headers)
            except Draining:
                continue
            if call is None:
                what = "no answer" if body is not None else "no stream"
                raise not_in_time(place(self.address, method, body), timeout_s, what)
            return wire, call

    def _check(self) -> None:
        if self._closed:
            raise self._config.closed()
        if os.getpid() != self._config.pid:
            raise self._config.forked()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise UsageError(
                    f"client of {self.address}",
                    found="used in another event loop than its first call",
                    wanted="one AsyncClient per event loop",
                    todo="make it in the coroutine that uses it, with `async with`",
                )
            self._loop = loop

    async def _connected(self, timeout_s: float, deadline: float) -> TaskConnection:
        """A connection that takes calls; tasks that need one at the same time share the attempt."""
        while True:
            if self._wire is not None and not self._wire.core.draining:
                return self._wire
            self._check()
            if self._attempt is None:
                self._attempt = asyncio.create_task(self._connect())
                self._attempt.add_done_callback(self._attempted)
            attempt = self._attempt
            left = deadline - time.monotonic()
            done, _ = await asyncio.wait({attempt}, timeout=max(left, 0.0))
            if not done:
                raise not_in_time(self.address, timeout_s, "no connection")
            if attempt.cancelled():
                continue
            error = attempt.exception()
            if isinstance(error, ServerUnavailable):
                again = unreachable(error.where, error.found, error.todo, unprocessed=True)
                raise again from error
            if error is not None:
                raise error

    def _attempted(self, attempt: asyncio.Task[TaskConnection]) -> None:
        self._attempt = None
        if attempt.cancelled() or attempt.exception() is not None:
            return
        past = self._old if self._wire is None else [*self._old, self._wire]
        for old in past:
            old.retire()
        self._old = [old for old in past if old.core.calls]
        self._wire = attempt.result()

    async def _connect(self) -> TaskConnection:
        """Reach the server and hear its SETTINGS, or raise `ServerUnavailable`."""
        loop, target = asyncio.get_running_loop(), self._config
        context = None if target.tls is None else target.tls.context
        core = Connection(target.fields(), self._limit)
        wire = TaskConnection(core, loop)
        what = ""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                places = await look_up_async(target.address.host, target.address.port)
                what = "cannot connect" if target.tls is None else "no TLS connection"
                sock = await connect_async(places)
                tuned(sock)
                await loop.create_connection(
                    lambda: wire,
                    sock=sock,
                    ssl=context,
                    server_hostname=target.server_name if context else None,
                )
                await wire.settings_received
        except (OSError, UnicodeError) as error:
            wire.cut()
            found = f"{what}: {reason(error)}" if what else unresolved(target.address.host, error)
            raise unreachable(self.address, f"UNAVAILABLE: {found}") from error
        except BaseException:
            wire.cut()
            raise
        if not core.settings_received or core.lost:
            wire.cut()
            raise unreachable(self.address, f"UNAVAILABLE: no HTTP/2 connection: {core.lost}")
        return wire


class _AsyncStream:
    """See `AsyncStream`."""

    def __init__(self, target: ChannelConfig, wire: TaskConnection, call: Call) -> None:
        self._config, self._wire, self._call = target, wire, call

    async def write(self, body: Body, timeout_s: float | None = None) -> None:
        """See `AsyncStream.write`; waits while the server takes no more."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        size = body_size(body)
        if size > LONGEST_MESSAGE:
            raise too_large(self._config.name, size)
        if self._call.ended or self._call.problem:
            raise self._over()
        self._wire.core.writer.write(self._call, body, size)
        if not await self._wire.push(self._call, deadline):
            raise not_in_time(self._config.name, timeout_s or 0.0, "a message was not taken")

    async def end(self) -> None:
        """See `AsyncStream.end`."""
        self._wire.core.writer.finish(self._call)
        self._wire.flush()

    async def read(self, timeout_s: float | None = None) -> memoryview | None:
        """See `AsyncStream.read`."""
        call = self._call
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        if not await self._wire.wait(call, deadline):
            raise not_in_time(self._config.name, timeout_s or 0.0, "no message")
        message = self._wire.core.read(call)
        self._wire.flush()
        if message is None:
            self._wire.over(call)
            if call.status != 0 or call.problem:
                raise self._over()
        return message

    async def cancel(self) -> None:
        """See `AsyncStream.cancel`; the server is told `GRACE_S` later, unless it ends before."""
        if not self._call.ended:
            self._call.problem = CANCELLED
            self._wire.cancel(self._call)

    def _over(self) -> ClientError:
        """Why nothing more can be sent or read."""
        return error_of(self._call, self._config, STREAM, None, None)
