"""A server in memory, for the tests of programs that call models.

Requests and answers take the same path as on the wire (checked, encoded, decoded); only the model is
replaced by a Python function on numpy arrays:

    double = FakeModel(
        inputs={"x": ("FP32", [2])},
        outputs={"y": ("FP32", [2])},
        function=lambda given: {"y": given["x"] * 2},
    )
    with Client(transport=MemoryTransport({"double": double})) as client:
        client.model("double").predict(x=[1.0, 2.0])["y"]
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from tritonkit.client.testing.fake import FakeModel, FakeServer
from tritonkit.errors import DeadlineExceeded, InferenceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Mapping

    from tritonkit.client.wire.transport import Body, Headers, Method

__all__ = ["AsyncMemoryTransport", "FakeModel", "MemoryTransport"]

T = TypeVar("T")

_THREADS = 64


class _Memory:
    """The common part of both transports: a server, threads for its functions, and whether it is closed."""

    address = "memory"

    def __init__(self, models: Mapping[str, FakeModel]) -> None:
        self._server = FakeServer(models)
        self._closed = False
        self._pid = os.getpid()
        # Threads start when they are needed.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tritonkit-memory")

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("client of memory", found="it was closed", todo="make a new Client")

    def renew(self) -> None:
        """See `Transport.renew`; there is no connection."""

    def _shut(self) -> None:
        self._closed = True
        if os.getpid() == self._pid:  # a fork has copies of its locks, but not its threads
            self._threads.shutdown(wait=False)

    def _submit(self, method: Method, body: Body) -> Future[bytes]:
        self._check_open()
        return self._threads.submit(self._server.answer, method, b"".join(body))


class MemoryTransport(_Memory):
    """Answers calls from functions, in the calling thread. Threads may share it.

    Args:
        models: the models "served", by name.
    """

    def send(self, method: Method, body: Body, timeout_s: float, headers: Headers = ()) -> memoryview:
        """See `Transport.send`; a function that ran longer than the timeout ends as on the wire."""
        self._check_open()
        started = time.monotonic()
        answer = self._server.answer(method, b"".join(body))
        if time.monotonic() - started > timeout_s:
            raise _late(timeout_s)
        return memoryview(answer)

    def begin(self, method: Method, body: Body, timeout_s: float, headers: Headers = ()) -> _Call:
        """See `Transport.begin`; the function runs in another thread."""
        return _Call(self._submit(method, body), timeout_s)

    def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _Messages:
        """See `Transport.stream`; functions run in the reading thread."""
        self._check_open()
        return _Messages(self._server)

    def close(self) -> None:
        """Refuse further calls."""
        self._shut()


class AsyncMemoryTransport(_Memory):
    """Answers calls of tasks from functions, which run in threads.

    Args:
        models: the models "served", by name.
    """

    async def send(self, method: Method, body: Body, timeout_s: float, headers: Headers = ()) -> memoryview:
        """See `AsyncTransport.send`; a cancelled call leaves its function running."""
        call = asyncio.wrap_future(self._submit(method, body))
        return memoryview(await _in_time(call, timeout_s))

    async def stream(self, headers: Headers = (), timeout_s: float | None = None) -> _AsyncMessages:
        """See `AsyncTransport.stream`."""
        self._check_open()
        return _AsyncMessages(self._server, self._threads)

    async def close(self) -> None:
        """Refuse further calls."""
        self._shut()


async def _in_time(call: Awaitable[T], timeout_s: float | None) -> T:
    try:
        async with asyncio.timeout(timeout_s) as clock:
            return await call
    except TimeoutError as error:
        # The function may have raised one of its own.
        if not clock.expired():
            raise
        raise _late(timeout_s or 0.0) from error


def _late(timeout_s: float) -> DeadlineExceeded:
    return DeadlineExceeded("memory", found=f"no answer within {timeout_s:.3g} s")


class _Call:
    """See `Pending`."""

    def __init__(self, answer: Future[bytes], timeout_s: float) -> None:
        self._answer = answer
        self._cancelled: Future[None] = Future()
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s

    def wait(self, seconds: float) -> bool:
        """See `Pending.wait`."""
        either: tuple[Future[Any], ...] = (self._answer, self._cancelled)
        return bool(wait(either, max(0.0, seconds), FIRST_COMPLETED).done)

    def result(self) -> memoryview:
        """See `Pending.result`."""
        self.wait(self._deadline - time.monotonic())
        if self._cancelled.done():
            raise InferenceError("memory", found="the call was cancelled")
        if not self._answer.done():
            raise _late(self._timeout_s)
        return memoryview(self._answer.result())

    def cancel(self) -> None:
        """See `Pending.cancel`; a function that has started runs on."""
        self._answer.cancel()
        with suppress(InvalidStateError):
            self._cancelled.set_result(None)


class _Messages:
    """See `MessageStream`; answers are made when they are read, as many as are read."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        # None wakes the reader: no more will be written, or the stream was cancelled.
        self._written: SimpleQueue[bytes | None] = SimpleQueue()
        self._answers: Iterator[bytes] = iter(())
        self._late: bytes | None = None
        self._reading = Lock()
        self._ended = self._cancelled = False

    def write(self, body: Body, timeout_s: float | None = None) -> None:
        """See `MessageStream.write`; never waits."""
        _check_stream(self._cancelled, self._ended)
        self._written.put(b"".join(body))

    def end(self) -> None:
        """See `MessageStream.end`."""
        self._ended = True
        self._written.put(None)

    def read(self, timeout_s: float | None = None) -> memoryview | None:
        """See `MessageStream.read`; a function is not interrupted, and what it made late is read next."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._reading:
            message = self._late or self._next(deadline, timeout_s or 0.0)
            self._late = None
            if self._cancelled:
                _stop(self._answers)
            _check_stream(self._cancelled)
            if message is None:
                return None
            if deadline is not None and time.monotonic() > deadline:
                self._late = message
                raise _late(timeout_s or 0.0)
            return memoryview(message)

    def cancel(self) -> None:
        """See `MessageStream.cancel`; a generator function ends at its `yield`."""
        self._cancelled = True
        self._written.put(None)
        # A reader that is inside the function stops it when it comes back.
        if self._reading.acquire(blocking=False):
            _stop(self._answers)
            self._reading.release()

    def _next(self, deadline: float | None, timeout_s: float) -> bytes | None:
        while not self._cancelled:
            message = next(self._answers, None)
            if message is not None:
                return message
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                request = self._written.get(timeout=left_s)
            except Empty:
                raise _late(timeout_s) from None
            if request is None:
                # Left for the next read, which ends in the same way.
                self._written.put(None)
                return None
            self._answers = self._server.stream(request)
        return None


class _AsyncMessages:
    """See `AsyncMessageStream`; a thread is used only while a function makes the next answer."""

    def __init__(self, server: FakeServer, threads: ThreadPoolExecutor) -> None:
        self._server = server
        self._threads = threads
        self._written: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answers: Iterator[bytes] = iter(())
        self._making: asyncio.Future[bytes | None] | None = None
        self._ended = self._cancelled = False

    async def write(self, body: Body, timeout_s: float | None = None) -> None:
        """See `AsyncMessageStream.write`; never waits."""
        _check_stream(self._cancelled, self._ended)
        self._written.put_nowait(b"".join(body))

    async def end(self) -> None:
        """See `AsyncMessageStream.end`."""
        self._ended = True
        self._written.put_nowait(None)

    async def read(self, timeout_s: float | None = None) -> memoryview | None:
        """See `AsyncMessageStream.read`; a late or cancelled reader loses no answer."""
        message = await _in_time(self._next(), timeout_s)
        _check_stream(self._cancelled)
        return None if message is None else memoryview(message)

    async def cancel(self) -> None:
        """See `AsyncMessageStream.cancel`; a generator function ends at its `yield`."""
        self._cancelled = True
        self._written.put_nowait(None)
        if self._making is None:
            _stop(self._answers)
        else:
            self._making.add_done_callback(lambda _: _stop(self._answers))

    async def _next(self) -> bytes | None:
        while not self._cancelled:
            if self._making is None:
                made = self._threads.submit(next, self._answers, None)
                self._making = asyncio.wrap_future(made)
            try:
                message = await asyncio.shield(self._making)
            except asyncio.CancelledError:
                # This reader gave up: the next one takes what is being made.
                raise
            except BaseException:
                self._making = None
                raise
            self._making = None
            if message is not None:
                return message
            request = await self._written.get()
            if request is None:
                self._written.put_nowait(None)
                return None
            self._answers = self._server.stream(request)
        return None


def _stop(answers: Iterator[bytes]) -> None:
    if isinstance(answers, Generator):
        answers.close()


def _check_stream(cancelled: bool, ended: bool = False) -> None:
    if cancelled:
        raise InferenceError("memory", found="the stream was cancelled")
    if ended:
        raise UsageError("stream of memory", found="a message was written after the end")
