"""Calls over HTTP/2 for tasks of one event loop: see `AsyncTransport`."""

from __future__ import annotations

import asyncio
import math
import os
import time

from tritonkit.client.wire.http2.base import ATTEMPTS, HURRY_S, REACHED_S, BaseStream, BaseTransport, again, until
from tritonkit.client.wire.http2.call import Call, CallRequest
from tritonkit.client.wire.http2.connect import connect_async
from tritonkit.client.wire.http2.connection import Draining
from tritonkit.client.wire.http2.task_connection import TaskConnection
from tritonkit.client.wire.status import CLOSED, STREAM
from tritonkit.client.wire.transport import Body, Elsewhere, Headers, Method
from tritonkit.errors import ServerUnavailable, UsageError

__all__ = ["AsyncHttp2Transport"]


class AsyncHttp2Transport(BaseTransport[TaskConnection]):
    """See `BaseTransport`; for the tasks of the event loop that makes the first call."""

    def _prepare(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attempt: asyncio.Task[ServerUnavailable | None] | None = None
        """A connection being made, for which tasks wait; why that failed."""
        self._hurried = False
        """Whether another server can take the calls that wait for it."""

    async def send(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = (), elsewhere: Elsewhere | None = None
    ) -> memoryview:
        """See `AsyncTransport.send`."""
        request = CallRequest(self._config, method, body, timeout_s, headers, elsewhere)
        for last in ATTEMPTS:
            connection, call = await self._open_call(request)
            in_time = await connection.complete(call, request.deadline)
            if last or not call.refused:
                break
        return self._answer(call, in_time, request)

    async def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _AsyncStream:
        """See `AsyncTransport.stream`."""
        seconds = self._connect_timeout_s if timeout_s is None else timeout_s
        connection, call = await self._open_call(CallRequest(self._config, STREAM, None, seconds, headers))
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

    async def _open_call(self, request: CallRequest) -> tuple[TaskConnection, Call]:
        """The call, begun and, as far as windows allow, sent."""
        while True:
            self._check_usable()
            connection = self._connection
            if connection is None or not await connection.usable():
                connection = await self._connected(request)
            try:
                call = await connection.start(request)
            except Draining:
                continue
            if call is None:
                raise self._not_started(request)
            return connection, call

    def _check_usable(self) -> None:
        super()._check_usable()
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

    async def _connected(self, request: CallRequest) -> TaskConnection:
        """A connection that takes calls; tasks that need one at the same time share the attempt."""
        while self._connection is None or self._connection.core.draining:
            self._check_usable()
            hurried = request.elsewhere is not None and request.elsewhere(False)
            if self._attempt is None:
                self._hurried = hurried
                self._attempt = asyncio.create_task(self._connect(hurried))
            attempt, given_up_early = self._attempt, self._hurried
            left = max(request.deadline - time.monotonic(), 0.0)
            most_s = min(left, HURRY_S if given_up_early else REACHED_S) if hurried else left
            if not (await asyncio.wait({attempt}, timeout=most_s))[0]:
                raise self._not_soon() if most_s < left else self._not_connected(request.timeout_s)
            # One that was given up early says nothing to a call that has nowhere else to go.
            if attempt.cancelled() or (given_up_early and not hurried):
                continue
            if (failed := attempt.result()) is not None:
                raise again(failed) from failed
        return self._connection

    async def _connect(self, hurried: bool) -> ServerUnavailable | None:
        """Make the connection; an error is returned, because no caller may be left to raise it to."""
        connection = TaskConnection(self._new_core(), asyncio.get_running_loop())
        seconds = min(self._connect_timeout_s, HURRY_S) if hurried else self._connect_timeout_s
        deadline = until(seconds)
        try:
            await connect_async(self._config, seconds, connection, REACHED_S if hurried else math.inf)
            await connection.wait(connection.core.greeted, deadline)
            self._install(connection)
        except ServerUnavailable as error:
            connection.abort()
            return error
        except BaseException:
            connection.abort()
            raise
        finally:
            self._attempt = None
        return None


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
