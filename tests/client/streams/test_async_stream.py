"""Streams of replies for tasks, in memory and over gRPC."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.client.streams.conftest import AsyncConnect, Counter
from tritonkit.client import AsyncClient
from tritonkit.errors import DeadlineExceeded, InferenceError, UsageError
from tritonkit.testing import FakeModel

LONG = [10_000, 0.01, -1]


@pytest.fixture
def run(connect_async: AsyncConnect, models: dict[str, FakeModel]) -> Callable[..., Any]:
    """Run a program that takes a client, in a loop of its own."""

    def running(program: Callable[[AsyncClient], Coroutine[Any, Any, Any]], **options: Any) -> Any:
        async def whole() -> Any:
            async with connect_async(models, **options) as client:
                return await program(client)

        return asyncio.run(whole())

    return running


async def stopped(counter: Counter) -> bool:
    """Whether the model is told to stop soon."""
    return await asyncio.to_thread(counter.stopped.wait, 60)


def test_replies_come_in_order(run: Callable[..., Any]) -> None:
    """There are as many replies as the model sends; other tasks run meanwhile."""

    async def program(client: AsyncClient) -> None:
        count = await client.model("count")
        stream = count.stream(x=[3, 0.02, -1])
        assert [reply["y"].item() async for reply in stream] == [0, 1, 2]
        assert [reply async for reply in stream] == []

        async def length(number: int) -> int:
            return len([reply async for reply in count.stream(x=[number, 0.01, -1])])

        assert await asyncio.gather(*map(length, range(8))) == list(range(8))

    run(program)


def test_a_failure_in_the_middle(run: Callable[..., Any]) -> None:
    """Replies before it are there, and the model answers other streams."""

    async def program(client: AsyncClient) -> None:
        count = await client.model("count")
        stream = count.stream(x=[4, 0, 1])
        assert (await anext(stream))["y"].item() == 0
        with pytest.raises(InferenceError, match="told to fail"):
            await anext(stream)
        assert [reply async for reply in stream] == []
        assert len([reply async for reply in count.stream(x=[2, 0, -1])]) == 2

    run(program)


def test_leaving_early_stops_the_model(run: Callable[..., Any], counter: Counter) -> None:
    """The end of the block is the end of the work."""

    async def program(client: AsyncClient) -> None:
        async with (await client.model("count")).stream(x=LONG) as replies:
            await anext(replies)
        assert await stopped(counter)
        assert await anext(replies, None) is None

    run(program)


def test_a_forgotten_stream_stops_the_model(run: Callable[..., Any], counter: Counter) -> None:
    """`break` in a loop over it is enough."""

    async def program(client: AsyncClient) -> None:
        async for _ in (await client.model("count")).stream(x=LONG):
            break
        gc.collect()
        assert await stopped(counter)

    run(program)


def test_cancelling_the_task_stops_the_model(run: Callable[..., Any], counter: Counter) -> None:
    """The task ends with its cancellation, the stream is over."""

    async def program(client: AsyncClient) -> None:
        stream = (await client.model("count")).stream(x=[10_000, 0.05, -1])
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in stream:
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await stopped(counter)
        assert await anext(stream, None) is None

    run(program)


@pytest.mark.slow
def test_times(run: Callable[..., Any], counter: Counter) -> None:
    """A limit for the whole stream, and the client's own for each reply."""

    async def program(client: AsyncClient) -> None:
        count = await client.model("count")
        with pytest.raises(DeadlineExceeded, match=r"timeout_s=1"):
            async for _ in count.stream(x=LONG, timeout_s=1.0):
                pass
        assert await stopped(counter)
        with pytest.raises(DeadlineExceeded, match=r"next reply within 1 s"):
            async for _ in count.stream(x=[2, 3, -1]):
                pass
        counter.go_on.set()

    run(program, timeout_s=1.0)


def test_closing_ends_another_tasks_wait(run: Callable[..., Any], counter: Counter) -> None:
    """The reader finds the end; a second concurrent reader is refused."""

    async def program(client: AsyncClient) -> None:
        stream = (await client.model("count")).stream(x=[2, 3, -1])
        await anext(stream)
        reading = asyncio.create_task(anext(stream, None))
        await asyncio.sleep(0.05)
        with pytest.raises(UsageError, match="read it concurrently"):
            await anext(stream)
        await stream.close()
        assert await reading is None
        counter.go_on.set()

    run(program)
