"""An asynchronous transport for threads: its event loop runs in a thread beside them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar

from tritonkit.errors import InferenceError, UsageError
from tritonkit.wire.transport import AsyncStream, AsyncTransport, Body, Headers, Method

__all__ = ["ThreadsTransport"]

T = TypeVar("T")

_END_S = 5.0
"""For what is under way to end when the transport is closed."""


class _Callee(Protocol):
    """Whom the transport calls: see `ChannelConfig`."""

    pid: int

    def closed(self) -> UsageError: ...
    def forked(self) -> UsageError: ...


class ThreadsTransport:
    """See `Transport`.

    Args:
        transport: carries the calls; nothing else may use it.
        target: whom it calls.
    """

    def __init__(self, transport: AsyncTransport, target: _Callee) -> None:
        self._transport, self._target = transport, target
        self.address = transport.address
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = Lock()
        self._closed = False

    def send(
        self, method: Method, body: Body, timeout_s: float, headers: Headers = ()
    ) -> memoryview:
        """See `Transport.send`."""
        return self.run(lambda: self._transport.send(method, body, timeout_s, headers))

    def begin(self, method: Method, body: Body, timeout_s: float, headers: Headers = ()) -> Any:
        """See `Transport.begin`."""
        return _Pending(
            self.address,
            self._start(lambda: self._transport.send(method, body, timeout_s, headers)),
        )

    def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _Stream:
        """See `Transport.stream`."""
        return _Stream(self, self.run(lambda: self._transport.stream(headers, timeout_s)))

    def close(self) -> None:
        """See `Transport.close`; a fork has a copy of the loop, and no thread that runs it."""
        if os.getpid() != self._target.pid:
            self._closed = True
            return
        with self._lock:
            closed, self._closed, loop = self._closed, True, self._loop
        if loop is not None and not closed:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    async def _end(self) -> None:
        """Close the transport, and let the calls that this ends reach the threads that wait for them."""
        await self._transport.close()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            _, late = await asyncio.wait(others, timeout=_END_S)
            for task in late:
                task.cancel()
            await asyncio.sleep(0)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do `work` in the loop and wait for it."""
        future = self._start(work)
        try:
            return future.result()
        except BaseException:  # an interrupt
            future.cancel()
            raise

    def _start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        if os.getpid() != self._target.pid:
            raise self._target.forked()
        with self._lock:
            if self._closed:
                raise self._target.closed()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                Thread(target=self._serve, args=(self._loop,), daemon=True).start()
            return asyncio.run_coroutine_threadsafe(work(), self._loop)

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        loop.close()


class _Pending:
    """See `Pending`."""

    def __init__(self, address: str, answer: Future[memoryview]) -> None:
        self._address, self._answer = address, answer

    def wait(self, seconds: float) -> bool:
        """See `Pending.wait`."""
        return bool(wait((self._answer,), seconds).done)

    def result(self) -> memoryview:
        """See `Pending.result`."""
        try:
            return self._answer.result()
        except CancelledError:
            raise InferenceError(self._address, found="the call was cancelled") from None

    def cancel(self) -> None:
        """See `Pending.cancel`."""
        self._answer.cancel()


class _Stream:
    """See `Stream`."""

    def __init__(self, transport: ThreadsTransport, stream: AsyncStream) -> None:
        self._run, self._stream = transport.run, stream

    def write(self, body: Body, timeout_s: float | None = None) -> None:
        """See `Stream.write`."""
        self._run(lambda: self._stream.write(body, timeout_s))

    def end(self) -> None:
        """See `Stream.end`."""
        self._run(self._stream.end)

    def read(self, timeout_s: float | None = None) -> memoryview | None:
        """See `Stream.read`."""
        return self._run(lambda: self._stream.read(timeout_s))

    def cancel(self) -> None:
        """See `Stream.cancel`."""
        self._run(self._stream.cancel)
