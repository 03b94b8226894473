"""Calls over HTTP/2 for tasks of one event loop: see `AsyncTransport`."""

from __future__ import annotations

import asyncio
import os
import time

from tritonkit.errors import ServerUnavailable, UsageError
from tritonkit.wire.http2.base import BaseStream, BaseTransport, until
from tritonkit.wire.http2.call import Call
from tritonkit.wire.http2.connect import connect_async, reason, tuned, unresolved
from tritonkit.wire.http2.connection import Connection, Draining
from tritonkit.wire.http2.status import ATTEMPTS, CLOSED, STREAM, unreachable
from tritonkit.wire.http2.task_connection import TaskConnection
from tritonkit.wire.names import look_up_async
from tritonkit.wire.transport import Body, Headers, Method

__all__ = ["AsyncHttp2Transport"]


class AsyncHttp2Transport(BaseTransport):
    """See `BaseTransport`; for the tasks of the event loop that makes the first call."""

    def _prepare(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: TaskConnection | None = None
        self._old: list[TaskConnection] = []
        self._attempt: asyncio.Task[TaskConnection] | None = None

    async def send(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = ()
    ) -> memoryview:
        """See `AsyncTransport.send`."""
        deadline = time.monotonic() + timeout_s
        for last in ATTEMPTS:
            connection, call = await self._open_call(method, body, timeout_s, deadline, headers)
            in_time = await connection.complete(call, deadline)
            if last or not call.refused:
                break
        return self._answer(call, in_time, method, body, timeout_s)

    async def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _AsyncStream:
        """See `AsyncTransport.stream`."""
        seconds = self._connect_timeout_s if timeout_s is None else timeout_s
        connection, call = await self._open_call(
            STREAM, None, seconds, time.monotonic() + seconds, headers
        )
        return _AsyncStream(self._config, connection, call)

    async def close(self) -> None:
        """Close the connection; calls under way in other tasks end with an error."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._config.pid:
            return
        connections = self._connections()
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait({self._attempt})
        for connection in connections:
            connection.close(CLOSED)
        if connections:
            await connections[-1].wait_closed()

    # -- connections

    def _connections(self) -> list[TaskConnection]:
        return self._old if self._connection is None else [*self._old, self._connection]

    async def _open_call(
        self, method: str, body: Body | None, timeout_s: float, deadline: float, headers: Headers
    ) -> tuple[TaskConnection, Call]:
        """The call, begun and sent."""
        size = self._checked_size(method, body, headers)
        while True:
            self._check()
            connection = self._connection
            if connection is None or not await connection.usable():
                connection = await self._connected(timeout_s, deadline)
            try:
                call = await connection.start(method, body, size, deadline, headers)
            except Draining:
                continue
            if call is None:
                raise self._not_started(method, body, timeout_s)
            return connection, call

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
            if self._connection is not None and not self._connection.core.draining:
                return self._connection
            self._check()
            if self._attempt is None:
                self._attempt = asyncio.create_task(self._connect())
                self._attempt.add_done_callback(self._attempted)
            attempt = self._attempt
            left = deadline - time.monotonic()
            done, _ = await asyncio.wait({attempt}, timeout=max(left, 0.0))
            if not done:
                raise self._not_connected(timeout_s)
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
        past = self._connections()
        for old in past:
            old.retire()
        self._old = [old for old in past if old.core.calls]
        self._connection = attempt.result()

    async def _connect(self) -> TaskConnection:
        """Reach the server and read its SETTINGS, or raise `ServerUnavailable`."""
        loop, config = asyncio.get_running_loop(), self._config
        context = None if config.tls is None else config.tls.context
        core = Connection(config.fields(), self._limit)
        connection = TaskConnection(core, loop)
        what = ""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                places = await look_up_async(config.address.host, config.address.port)
                what = "cannot connect" if config.tls is None else "no TLS connection"
                sock = await connect_async(places)
                tuned(sock)
                await loop.create_connection(
                    lambda: connection,
                    sock=sock,
                    ssl=context,
                    server_hostname=config.server_name if context else None,
                )
                await connection.settings_received
        except (OSError, UnicodeError) as error:
            connection.abort()
            found = f"{what}: {reason(error)}" if what else unresolved(config.address.host, error)
            raise unreachable(self.address, f"UNAVAILABLE: {found}") from error
        except BaseException:
            connection.abort()
            raise
        if not core.settings_received or core.lost:
            connection.abort()
            raise unreachable(self.address, f"UNAVAILABLE: no HTTP/2 connection: {core.lost}")
        return connection


class _AsyncStream(BaseStream[TaskConnection]):
    """See `AsyncMessageStream`."""

    async def write(self, body: Body, timeout_s: float | None = None) -> None:
        """See `AsyncMessageStream.write`; waits while the server takes no more."""
        deadline = until(timeout_s)
        size = self._checked_size(body)
        self._connection.core.writer.write(self._call, body, size)
        if not await self._connection.push(self._call, deadline):
            raise self._late("a message was not taken", timeout_s)

    async def end(self) -> None:
        """See `AsyncMessageStream.end`."""
        self._connection.core.writer.finish(self._call)
        self._connection.flush()

    async def read(self, timeout_s: float | None = None) -> memoryview | None:
        """See `AsyncMessageStream.read`."""
        if not await self._connection.wait(self._call, until(timeout_s)):
            raise self._late("no message", timeout_s)
        message = self._connection.core.read(self._call)
        self._connection.flush()
        if message is None:
            self._check_end()
        return message

    async def cancel(self) -> None:
        """See `AsyncMessageStream.cancel`; the reset goes out `GRACE_S` later, unless it ends before."""
        self._cancel()
