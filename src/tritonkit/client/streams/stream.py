"""Streams of replies for threads and for tasks; `stream_call` has their logic."""

from __future__ import annotations

import _thread
import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tritonkit.client.steps import run_async, run_blocking
from tritonkit.client.streams.stream_call import StreamCall

if TYPE_CHECKING:
    from tritonkit.client.core import Core
    from tritonkit.client.reply import Reply
    from tritonkit.client.request import InferRequest

__all__ = ["AsyncStream", "Stream"]


class Stream:
    """The replies of a decoupled model to one request: an iterator, and a context manager.

    The request leaves at entering the `with` block, or else when the first reply is read. Each
    reply's `timing.total_s` runs from then, `timing.wait_s` from the reply before. Leaving the block, or
    `close`, or dropping the last reference ends the work at the server. An error ends the stream.

    `timeout_s`, if given, is for the whole stream; without it each reply may take the client's.

    Raises:
        InvalidInput: the request was refused before sending.
        InferenceError: the model failed, also after replies; the text is its own.
        DeadlineExceeded: the time is up.
        ServerUnavailable: no server answers, or the connection broke. Another server is tried once, if
            there is one and the first certainly did not begin; otherwise nothing is repeated.
        UsageError: the client is closed, or two threads read.
    """

    def __init__(self, core: Core, request: InferRequest) -> None:
        self._call = StreamCall(core, request)

    def __iter__(self) -> Stream:
        """The stream itself: it can be read once."""
        return self

    def __next__(self) -> Reply:
        """Wait for the next reply."""
        reply = run_blocking(self._call.next())
        if reply is None:
            raise StopIteration
        return reply

    def close(self) -> None:
        """End it, also at the server; a thread that reads finds it at its end."""
        run_blocking(self._call.close())

    def __enter__(self) -> Stream:
        """Send the request; the stream is closed when the block ends."""
        run_blocking(self._call.next(read=False))
        return self

    def __exit__(self, *_: object) -> None:
        """Close the stream."""
        self.close()

    def __del__(self) -> None:
        """Close, if it was forgotten."""
        if self._call.under_way:
            # In another thread: this may run inside any code, also the transport's, in its locks.
            with suppress(RuntimeError):  # Python ends
                _thread.start_new_thread(_closed, (self._call,))


def _closed(call: StreamCall) -> None:
    with suppress(Exception):
        run_blocking(call.close())


class AsyncStream:
    """`Stream` for tasks: an asynchronous iterator and context manager.

    Cancelling the task that reads ends the stream, here and at the server.
    """

    def __init__(self, core: Core, request: InferRequest) -> None:
        self._call = StreamCall(core, request)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __aiter__(self) -> AsyncStream:
        """The stream itself: it can be read once."""
        return self

    async def __anext__(self) -> Reply:
        """Wait for the next reply."""
        self._loop = asyncio.get_running_loop()
        reply = await run_async(self._call.next())
        if reply is None:
            raise StopAsyncIteration
        return reply

    async def close(self) -> None:
        """End the stream, at the server too; a task that reads it finds its end."""
        await run_async(self._call.close())

    async def __aenter__(self) -> AsyncStream:
        """Send the request; the stream is closed when the block ends."""
        self._loop = asyncio.get_running_loop()
        await run_async(self._call.next(read=False))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the stream."""
        await self.close()

    def __del__(self) -> None:
        """Close, if it was forgotten."""
        if self._loop is not None and self._call.under_way:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_close_soon, self._loop, self._call)


_closing: set[asyncio.Task[None]] = set()


def _close_soon(loop: asyncio.AbstractEventLoop, call: StreamCall) -> None:
    closing = loop.create_task(_close_quietly(call))
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)


async def _close_quietly(call: StreamCall) -> None:
    with suppress(Exception):
        await run_async(call.close())
