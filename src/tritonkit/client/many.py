"""Calls for many items of one model: in order, a few at a time, from a possibly endless iterable."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tritonkit.client.steps import run_async, run_blocking
from tritonkit.errors import ClientError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable

    from tritonkit.client.steps import Steps

__all__ = ["ManyArguments", "check_concurrency", "many", "many_async", "with_errors"]

T = TypeVar("T")

ManyArguments: TypeAlias = "tuple[Callable[[Any], Steps[Any]], int, Callable[[int], object] | None]"
"""The arguments of `many` and `many_async` after the items."""

_MOST = 1024


def check_concurrency(concurrency: int) -> None:
    """Raise a UsageError for a number that is not from 1 to 1024."""
    if not 1 <= concurrency <= _MOST:
        raise UsageError("predict_many", found=f"concurrency={concurrency}", wanted=f"a whole number from 1 to {_MOST}")


def many(
    items: Iterable[Any],
    steps_of: Callable[[Any], Steps[Any]],
    concurrency: int,
    progress: Callable[[int], object] | None = None,
) -> Generator[Any, None, None]:
    """Call for each item in `concurrency` threads, and yield the results in the items' order.

    At most `concurrency` items are taken ahead of the results that were read. Closing the generator, or an
    error, stops taking items and waits for the calls under way.

    Args:
        items: taken one by one.
        steps_of: makes the steps of the call for one item.
        concurrency: calls under way at a time.
        progress: called with the number done, each time a result is handed on.
    """
    waiting: deque[Future[Any]] = deque()
    done, pid = 0, os.getpid()
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="tritonkit-many")
    try:
        for item in items:
            _check_process(pid)
            waiting.append(pool.submit(run_blocking, steps_of(item)))
            if len(waiting) >= concurrency:
                yield waiting.popleft().result()
                done = _counted(progress, done)
        while waiting:
            _check_process(pid)
            yield waiting.popleft().result()
            done = _counted(progress, done)
    finally:
        if os.getpid() == pid:  # a fork has copies of its locks, but not its threads
            for future in waiting:
                future.cancel()
            pool.shutdown()


async def many_async(
    items: Iterable[Any] | AsyncIterable[Any],
    steps_of: Callable[[Any], Steps[Any]],
    concurrency: int,
    progress: Callable[[int], object] | None = None,
) -> AsyncGenerator[Any, None]:
    """`many` with tasks; `items` may be an asynchronous iterable. Closing it cancels what is under way."""
    waiting: deque[asyncio.Task[Any]] = deque()
    done = 0
    try:
        async for item in _as_async(items):
            waiting.append(asyncio.ensure_future(run_async(steps_of(item))))
            if len(waiting) >= concurrency:
                yield await _first(waiting)
                done = _counted(progress, done)
        while waiting:
            yield await _first(waiting)
            done = _counted(progress, done)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _check_process(pid: int) -> None:
    if os.getpid() != pid:
        raise UsageError(
            "predict_many",
            found=f"begun in process {pid} and read in a fork of it, {os.getpid()}",
            wanted="one process that begins and reads",
            todo="make the client and call after the fork",
        )


def with_errors(steps: Steps[T]) -> Steps[T | ClientError]:
    """The steps, with a `ClientError` as their result instead of raised."""
    try:
        return (yield from steps)
    except ClientError as error:
        return error


async def _as_async(items: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def _first(waiting: deque[asyncio.Task[Any]]) -> Any:
    # Removed only when it is done: a cancelled wait must still find it, to cancel it too.
    try:
        return await waiting[0]
    finally:
        if waiting[0].done():
            waiting.popleft()


def _counted(progress: Callable[[int], object] | None, done: int) -> int:
    if progress is not None:
        progress(done + 1)
    return done + 1
