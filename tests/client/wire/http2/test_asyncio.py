"""Behavior of the tasks' transport alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from tests.client.wire.grpc_servers import Answers, body, data_of
from tritonkit.client.wire.http2 import AsyncHttp2Transport
from tritonkit.errors import DeadlineExceeded, UsageError

from .conftest import Peer, Script


def test_cancelling_a_task_cancels_its_call(address: str, answers: Answers) -> None:
    """At the server too; the others' calls go on."""

    async def main() -> None:
        transport = AsyncHttp2Transport(address)
        slow = asyncio.create_task(transport.send("ModelInfer", body("slow", id="60"), 90.0))
        assert await asyncio.to_thread(answers.slow.wait, 60)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert data_of(await transport.send("ModelInfer", body(data=b"x"), 20.0)) == b"x"
        assert await asyncio.to_thread(answers.cancelled.wait, 60)
        await transport.close()
        await transport.close()

    asyncio.run(main())


def test_cancelling_the_task_that_connects_leaves_the_others(address: str) -> None:
    """Tasks wait for the same connection, whichever came first."""

    async def main() -> None:
        transport = AsyncHttp2Transport(address)
        first, *others = [asyncio.create_task(transport.send("ModelInfer", body(data=b"x"), 20.0)) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        assert [data_of(answer) for answer in await asyncio.gather(*others)] == [b"x"] * 4
        await transport.close()

    asyncio.run(main())


def test_two_thousand_tasks(play: Callable[[Script], str]) -> None:
    """All run concurrently on one connection, answered last first."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        streams = [peer.request() for _ in range(2000)]
        peer.send(b"".join(peer.answer(stream, b"%d" % stream) for stream in reversed(streams)))
        peer.request()

    address = play(script)

    async def main() -> None:
        transport = AsyncHttp2Transport(address)
        calls = [transport.send("ModelInfer", [b"x"], 60.0) for _ in range(2000)]
        answers = [int(bytes(answer)) for answer in await asyncio.gather(*calls)]
        assert answers == list(range(1, 4001, 2))
        await transport.close()

    asyncio.run(main())


def test_deadlines_of_many_tasks(address: str) -> None:
    """Each ends at its own, with one timer for all, in whatever order they come."""

    async def late(transport: AsyncHttp2Transport, timeout_s: float) -> None:
        started = time.monotonic()
        call = asyncio.create_task(transport.send("ModelInfer", body("slow", id="60"), timeout_s))
        call.add_done_callback(lambda _: ends.append((timeout_s, time.monotonic() - started)))
        # A loop that is late runs this timer after the one of the deadlines, which is the earlier.
        await asyncio.sleep(timeout_s + 0.2)
        for _ in range(10):
            await asyncio.sleep(0)
        assert call.done()
        with pytest.raises(DeadlineExceeded):
            await call

    async def main() -> None:
        transport = AsyncHttp2Transport(address)
        await transport.send("ServerLive", [b""], 5.0)
        await asyncio.gather(*[late(transport, s) for s in (0.6, 0.2, 0.4, 0.1, 0.3)])
        assert all(took_s >= timeout_s for timeout_s, took_s in ends)
        await transport.close()

    ends: list[tuple[float, float]] = []
    asyncio.run(main())
    assert len(ends) == 5


def test_another_event_loop_is_told(address: str) -> None:
    """A connection belongs to the loop it was made in."""
    transport = AsyncHttp2Transport(address)

    async def call() -> None:
        await transport.send("ServerLive", [b""], 5.0)

    async def main() -> None:
        await call()
        errors: list[BaseException] = []

        def other() -> None:
            try:
                asyncio.run(call())
            except UsageError as error:
                errors.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        await asyncio.to_thread(thread.join, 10)
        assert "another event loop" in str(errors[0])
        await transport.close()

    asyncio.run(main())
