"""What callers sleep on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tritonkit.client.batching.latch import Latch


def test_opened_before_the_sleep_it_ends_at_once() -> None:
    """An opening is not lost on a thread that is not asleep yet, and counts once."""
    latch = Latch()
    latch.open()
    latch.open()
    assert latch.block()
    latch.seconds = 0.0
    assert not latch.block()


def test_a_thread_is_woken_by_another() -> None:
    """The sleep ends long before its time."""
    latch = Latch()
    latch.seconds = 60.0
    threading.Timer(0.01, latch.open).start()
    assert latch.block()


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.001])
def test_time_passes_without_an_opening(seconds: float) -> None:
    """Threads and tasks are told that nobody opened it."""
    latch = Latch()
    latch.seconds = seconds
    assert not latch.block()
    assert not asyncio.run(latch.wait())


def test_a_task_is_woken_by_another() -> None:
    """So is a task, also when the opening came first; an endless time is allowed."""

    async def main() -> list[bool]:
        latch = Latch()
        latch.seconds = float("inf")
        asyncio.get_running_loop().call_later(0.001, latch.open)
        first = await latch.wait()
        latch.open()
        return [first, await latch.wait()]

    assert asyncio.run(main()) == [True, True]


def test_an_opening_after_a_cancelled_sleep_harms_nobody() -> None:
    """The future of a cancelled task is left alone."""

    async def main() -> bool:
        latch = Latch()
        task = asyncio.create_task(latch.wait())
        await asyncio.sleep(0)
        task.cancel()
        latch.open()
        await asyncio.gather(task, return_exceptions=True)
        latch.open()
        return await latch.wait()

    assert asyncio.run(main())
