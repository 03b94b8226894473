"""The objects on which threads and tasks sleep."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import Any

import pytest

from tritonkit.client.steps import run_async, run_blocking
from tritonkit.client.waiting import Event, Wakeup

LONG_S = 60.0
"""Far longer than any test: a sleep that ends by being woken."""


def test_woken_before_the_sleep_it_ends_at_once() -> None:
    """A call is not lost on a thread that does not sleep yet, and counts once."""
    wakeup = Wakeup()
    wakeup.wake()
    wakeup.wake()
    assert wakeup.block()
    wakeup.seconds = 0.0
    assert not wakeup.block()


def test_a_thread_is_woken_by_another() -> None:
    """The sleep ends long before its time."""
    wakeup = Wakeup(LONG_S)
    threading.Timer(0.01, wakeup.wake).start()
    assert wakeup.block()


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.001])
def test_time_passes_without_a_call(seconds: float) -> None:
    """Threads and tasks are told that nobody woke them."""
    wakeup = Wakeup(seconds)
    assert not wakeup.block()
    assert not asyncio.run(wakeup.wait())


@pytest.mark.parametrize("seconds", [LONG_S, math.inf])
def test_a_task_is_woken_by_another(seconds: float) -> None:
    """A task is woken too, also if the call came first; an endless time is allowed."""

    async def main() -> list[bool]:
        wakeup = Wakeup(seconds)
        asyncio.get_running_loop().call_later(0.001, wakeup.wake)
        first = await wakeup.wait()
        wakeup.wake()
        return [first, await wakeup.wait()]

    assert asyncio.run(main()) == [True, True]


def test_an_endless_sleep_of_a_thread_can_be_ended() -> None:
    """Infinity is no time that a lock takes, and is allowed here."""
    wakeup = Wakeup(math.inf)
    threading.Timer(0.01, wakeup.wake).start()
    assert wakeup.block()


def test_a_task_is_woken_by_a_thread() -> None:
    """Its loop, which sleeps too, is woken: thousands of calls come through, none is lost."""
    rounds = 2000
    there, back = Wakeup(LONG_S), Wakeup(LONG_S)

    def thread() -> None:
        for _ in range(rounds):
            back.wake()
            there.block()

    async def main() -> bool:
        other = threading.Thread(target=thread)
        other.start()
        woken = True
        for _ in range(rounds):
            woken = await back.wait() and woken
            there.wake()
        other.join()
        return woken

    assert asyncio.run(main())


def test_a_call_after_a_cancelled_sleep_is_kept_for_the_next() -> None:
    """The future of a cancelled task is left alone."""

    async def main() -> bool:
        wakeup = Wakeup(LONG_S)
        task = asyncio.create_task(wakeup.wait())
        await asyncio.sleep(0)
        task.cancel()
        wakeup.wake()
        await asyncio.gather(task, return_exceptions=True)
        wakeup.wake()
        return await wakeup.wait()

    assert asyncio.run(main())


def test_a_loop_that_was_closed_is_no_trouble() -> None:
    """Waking a task whose loop is gone is not an error."""
    wakeup = Wakeup(LONG_S)
    loop = asyncio.new_event_loop()
    task = loop.create_task(wakeup.wait())
    loop.run_until_complete(asyncio.sleep(0))
    waker = threading.Thread(target=wakeup.wake)
    future, wakeup._future = wakeup._future, None
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    wakeup._future = future
    waker.start()
    waker.join()


def test_an_event_wakes_threads_and_tasks_that_wait_and_those_that_come_later() -> None:
    """Everyone is told that it has happened, whenever they began to wait."""
    event, woken = Event(), []

    def thread() -> None:
        woken.append(run_blocking(event.wait_for(LONG_S)))

    threads = [threading.Thread(target=thread) for _ in range(5)]
    for waiter in threads:
        waiter.start()

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(run_async(event.wait_for(LONG_S))) for _ in range(5)]
        await asyncio.sleep(0.01)
        threading.Thread(target=event.set).start()
        return await asyncio.gather(*tasks)

    woken += asyncio.run(main())
    for waiter in threads:
        waiter.join()
    assert woken == [True] * 10
    started = time.monotonic()
    assert run_blocking(event.wait_for(LONG_S))
    assert time.monotonic() - started < LONG_S


def test_an_event_that_does_not_happen_is_waited_for_in_vain() -> None:
    """After the time given everyone goes on; one whose wait was cancelled harms nobody."""
    event = Event()
    assert not run_blocking(event.wait_for(0.0))
    steps = event.wait_for(LONG_S)
    next(steps)
    steps.close()
    event.set()
    assert event.is_set
