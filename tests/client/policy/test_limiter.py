"""Concurrent calls: the line in front of the servers."""

from __future__ import annotations

import asyncio
import threading
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.policy.world import World
from tritonkit.client.policy import Limit
from tritonkit.client.policy.limiter import ConcurrencyLimiter
from tritonkit.client.steps import run_async, run_blocking
from tritonkit.errors import DeadlineExceeded, Overloaded


def until(condition: Any) -> None:
    """Wait for something that other threads bring about."""
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not come about")


def test_never_more_than_allowed_and_first_come_first_served() -> None:
    """A hundred calls over three places: three run concurrently, in the order in which they came."""
    order: list[int] = []
    most = [0]

    def script(_: Any) -> tuple[float, None]:
        most[0] = max(most[0], here.policy.limiter.in_flight)
        return 0.1, None

    here = World(["a:1"], script, limit=Limit(in_flight=3, waiting=1000))

    def started(number: int) -> Any:
        sent = yield from here.steps(100.0)
        order.append(number)
        return sent

    for number in range(100):
        here.start(here.clock.now + number * 0.001, lambda n=number: started(n), lambda _: None)
    here.run()
    assert order == list(range(100))
    assert most[0] == 3
    assert here.policy.limiter.in_flight == here.policy.limiter.waiting == 0


def test_time_in_line_is_told() -> None:
    """`queue_s` is the time spent waiting for a place, `wait_s` that in the transport."""
    here = World(["a:1"], lambda _: (0.5, None), limit=Limit(in_flight=1))
    ends: list[Any] = []
    for _ in range(2):
        here.start(here.clock.now, here.steps, ends.append)
    here.run()
    assert [round(end.queue_s, 3) for end in ends] == [0.0, 0.5]
    assert [round(end.wait_s, 3) for end in ends] == [0.5, 0.5]


def test_a_full_line_sheds_at_once() -> None:
    """One call more than places and line together is refused, with the figures."""
    here = World(["a:1"], lambda _: (1.0, None), limit=Limit(in_flight=2, waiting=3))
    ends: list[Any] = []
    for _ in range(6):
        here.start(here.clock.now, here.steps, ends.append)
    here.start(here.clock.now + 0.01, lambda: iter(()), lambda _: None)
    here.run()
    shed = [end for end in ends if isinstance(end, Exception)]
    assert len(shed) == 1
    assert isinstance(shed[0], Overloaded)
    assert shed[0].where == "client"
    assert "2 calls in flight and 3 waiting" in shed[0].found


def test_a_call_that_would_be_late_is_shed_before_it_waits() -> None:
    """With calls of a second and ten before it, a call with two seconds is refused immediately."""
    here = World(["a:1"], lambda _: (1.0, None), limit=Limit(in_flight=1, waiting=100))
    for _ in range(20):
        here.call()
    begun = here.clock.now
    ends: list[tuple[float, Any]] = []
    for _ in range(10):
        here.start(begun, lambda: here.steps(60.0), lambda _: None)
    here.start(begun + 0.01, lambda: here.steps(2.0), lambda end: ends.append((here.clock.now, end)))
    here.run()
    moment, end = ends[0]
    assert moment == pytest.approx(begun + 0.01)
    assert isinstance(end, Overloaded)


def test_a_slow_first_call_sheds_nothing() -> None:
    """A call that waited long for a model to be loaded does not make later ones look hopeless."""
    seconds = iter([30.0] + [0.01] * 1000)
    here = World(["a:1"], lambda _: (next(seconds), None), limit=Limit(in_flight=2))
    here.call(timeout_s=60.0)
    ends: list[Any] = []
    for _ in range(200):
        here.start(here.clock.now, lambda: here.steps(5.0), ends.append)
    here.run()
    assert not [end for end in ends if isinstance(end, Exception)]


def test_time_over_in_line() -> None:
    """A call whose time ends in line is `DeadlineExceeded`, and its place in line is gone."""
    here = World(["a:1"], lambda _: (5.0, None), limit=Limit(in_flight=1))
    ends: list[Any] = []
    here.start(here.clock.now, here.steps, lambda _: None)
    here.start(here.clock.now, lambda: here.steps(1.0), ends.append)
    here.start(here.clock.now, lambda: here.steps(12.0), ends.append)
    here.run()
    assert isinstance(ends[0], DeadlineExceeded)
    assert ends[1].queue_s == pytest.approx(5.0)
    assert here.messages == 2
    assert here.policy.limiter.in_flight == 0


def test_admin_calls_do_not_wait_in_line() -> None:
    """Whatever is no inference passes by the line."""
    here = World(["a:1"], lambda _: (0.0, None), limit=Limit(in_flight=1, waiting=0))
    assert here.policy.limiter.try_acquire()
    here.call(method="ServerReady")
    with pytest.raises(Overloaded):
        here.call()


def test_threads_share_the_places() -> None:
    """Forty threads over four places: never more than four inside, all come through."""
    limiter, inside, most = ConcurrencyLimiter(Limit(4, 100)), [0], [0]
    lock = threading.Lock()
    done: list[int] = []

    def caller(number: int) -> None:
        for _ in range(25):
            if not limiter.try_acquire():
                run_blocking(limiter.acquire(60.0))
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            with lock:
                inside[0] -= 1
            limiter.release(1e-6)
        done.append(number)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 40
    assert most[0] <= 4
    assert limiter.in_flight == limiter.waiting == 0


def test_threads_are_served_in_order() -> None:
    """Threads that wait get places in the order in which they began to wait."""
    limiter, order = ConcurrencyLimiter(Limit(1, 100)), []
    assert limiter.try_acquire()

    def caller(number: int) -> None:
        run_blocking(limiter.acquire(60.0))
        order.append(number)
        limiter.release(None)

    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=caller, args=(number,)))
        threads[-1].start()
        until(lambda n=number: limiter.waiting == n + 1)
    limiter.release(None)
    for thread in threads:
        thread.join(60)
    assert order == list(range(8))
    assert limiter.in_flight == 0


def test_a_thread_gives_up_at_its_deadline() -> None:
    """A thread in line returns when its time is over, and leaves the line."""
    limiter = ConcurrencyLimiter(Limit(1, 10))
    assert limiter.try_acquire()
    with pytest.raises(DeadlineExceeded, match="in flight"):
        run_blocking(limiter.acquire(0.02))
    assert limiter.waiting == 0
    limiter.release(None)
    assert limiter.in_flight == 0


def test_a_cancelled_task_leaves_no_hole() -> None:
    """Tasks cancelled in line, also in the moment they were given the place, pass it on."""

    async def story() -> None:
        limiter = ConcurrencyLimiter(Limit(1, 100))
        assert limiter.try_acquire()
        tasks = [asyncio.create_task(run_async(limiter.acquire(60.0))) for _ in range(4)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert limiter.waiting == 4
        tasks[1].cancel()
        await asyncio.sleep(0.001)
        assert limiter.waiting == 3
        limiter.release(None)  # the place is the first task's now, which has not run since
        tasks[0].cancel()
        await asyncio.gather(*tasks[:2], return_exceptions=True)
        await tasks[2]
        limiter.release(None)
        await tasks[3]
        limiter.release(None)
        assert limiter.in_flight == limiter.waiting == 0

    asyncio.run(story())


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_any_mix_of_cancelling_and_leaving_keeps_the_count(random: Random, places: int) -> None:
    """However tasks come, end and are cancelled, every place is free at the end."""

    async def caller(limiter: ConcurrencyLimiter, inside: list[int]) -> None:
        if not limiter.try_acquire():
            await run_async(limiter.acquire(60.0))
        inside[0] += 1
        assert inside[0] <= places
        try:
            for _ in range(random.randrange(3)):
                await asyncio.sleep(0)
        finally:
            inside[0] -= 1
            limiter.release(0.0)

    async def story() -> None:
        limiter, inside = ConcurrencyLimiter(Limit(places, 1000)), [0]
        tasks = [asyncio.create_task(caller(limiter, inside)) for _ in range(30)]
        for _ in range(40):
            await asyncio.sleep(0)
            random.choice(tasks).cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError)
        assert limiter.in_flight == limiter.waiting == 0

    asyncio.run(story())


def test_an_abandoned_call_gives_its_place_back() -> None:
    """Closing the generator of a call, in line or under way, frees what it held."""
    here = World(["a:1"], lambda _: (1.0, None), limit=Limit(1, 10))
    first, second = here.steps(), here.steps()
    next(first)
    next(second)
    assert here.policy.limiter.waiting == 1
    second.close()
    assert here.policy.limiter.waiting == 0
    first.close()
    assert here.policy.limiter.in_flight == 0
