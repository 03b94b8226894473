"""Many concurrent callers, as threads, as tasks, and in random order."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tritonkit.client.batching import Adaptive, Batcher, Item, join_items, split_outputs
from tritonkit.client.steps import Sleep, Step, run_async, run_blocking
from tritonkit.errors import DeadlineExceeded, InferenceError, ServerUnavailable

BAD = 13.0


class Server:
    """Doubles what it gets, 2 ms a batch; refuses a batch that holds a 13."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.seconds = seconds
        self.sizes: list[int] = []

    def send(self, items: Sequence[Item], deadline: float) -> Generator[Step, Any, Sequence[Any]]:
        """The steps of one request."""
        values = join_items(items)["x"]
        self.sizes.append(len(items))
        yield Sleep(min(self.seconds, max(0.0, deadline - time.monotonic())))
        if time.monotonic() >= deadline:
            raise DeadlineExceeded("server", found="too slow")
        if (values == BAD).any():
            raise InferenceError("server", found="a 13")
        return split_outputs({"y": values * 2}, len(items), "server")


def an_item(value: float, timeout_s: float = 30.0) -> Item:
    """One item with a value."""
    return Item({"x": np.full((1, 3), value, np.float32)}, time.monotonic() + timeout_s)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)` to `work(count - 1)` concurrently; the first error is raised here."""
    errors: list[BaseException] = []

    def guarded(at: int) -> None:
        try:
            work(at)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_64_threads_share_few_requests(in_flight: int) -> None:
    """Everyone gets its own answer, and batches are large: a request takes longer than all threads to call again."""
    server = Server(0.05)
    batcher = Batcher(Adaptive(in_flight=in_flight), 64, server.send)

    def work(at: int) -> None:
        for turn in range(10):
            value = 100.0 + at * 10 + turn
            joined = run_blocking(batcher.join(an_item(value)))
            assert joined["y"].tolist() == [[2 * value] * 3]

    in_threads(64, work)
    assert sum(server.sizes) == 640
    assert max(server.sizes) <= 64
    assert len(server.sizes) < 160


def test_threads_with_bad_items_among_good_ones() -> None:
    """A bad item's caller gets the error, nobody else does."""
    server = Server(0.0005)
    batcher = Batcher(Adaptive(), 16, server.send, idempotent=True)

    def work(at: int) -> None:
        for turn in range(5):
            value = BAD if (at + turn) % 9 == 0 else at + 50.0
            try:
                joined = run_blocking(batcher.join(an_item(value)))
            except InferenceError:
                assert value == BAD
            else:
                assert joined["y"][0, 0] == 2 * value != 2 * BAD

    in_threads(24, work)


def test_threads_whose_time_is_short_do_not_end_the_others_calls() -> None:
    """A slow server: callers with 20 ms are told so, callers with 30 s are answered."""
    server = Server(0.06)
    batcher = Batcher(Adaptive(in_flight=1), 64, server.send)

    def work(at: int) -> None:
        hurried = at % 3 == 0
        try:
            joined = run_blocking(batcher.join(an_item(at + 50.0, 0.02 if hurried else 30.0)))
        except DeadlineExceeded:
            assert hurried
        else:
            assert joined["y"][0, 0] == 2 * (at + 50.0)

    in_threads(24, work)


def test_2000_tasks_share_few_requests() -> None:
    """Everyone gets its own answer."""
    server = Server()
    batcher = Batcher(Adaptive(), 64, server.send)

    async def work(value: float) -> float:
        joined = await run_async(batcher.join(an_item(value)))
        return float(joined["y"][0, 0])

    async def main() -> list[float]:
        return await asyncio.gather(*(work(100.0 + at) for at in range(2000)))

    assert asyncio.run(main()) == [2 * (100.0 + at) for at in range(2000)]
    assert len(server.sizes) < 80


def test_cancelled_tasks_leave_without_harming_others() -> None:
    """A third of the tasks are cancelled at random moments; the rest are answered."""
    server = Server()
    batcher = Batcher(Adaptive(), 16, server.send, idempotent=True)
    chance = random.Random(5)

    async def work(value: float) -> float:
        joined = await run_async(batcher.join(an_item(value)))
        return float(joined["y"][0, 0])

    async def main() -> None:
        for _ in range(5):
            tasks = [asyncio.create_task(work(100.0 + at)) for at in range(60)]
            loop = asyncio.get_running_loop()
            for task in tasks[::3]:
                loop.call_later(chance.random() * 0.01, task.cancel)
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for at, end in enumerate(ended):
                if at % 3 or not isinstance(end, asyncio.CancelledError):
                    assert end == 2 * (100.0 + at)

    asyncio.run(main())


@settings(max_examples=150, deadline=None)
@given(
    seed=some.integers(0, 2**32),
    count=some.integers(1, 30),
    in_flight=some.integers(1, 3),
    max_batch=some.integers(1, 8),
)
def test_any_order_of_events_ends_well(room: Any, seed: int, count: int, in_flight: int, max_batch: int) -> None:
    """Calls, answers, errors, cancels and time in any order: everyone gets their own, none hangs."""
    chance = random.Random(seed)
    here = room(max_batch=max_batch, in_flight=in_flight)
    bad = {float(value) for value in range(count) if chance.random() < 0.1}
    cancelled = set()
    to_come = list(range(count))
    while to_come or not all(caller.done for caller in here.callers):
        senders = here.senders()
        assert len(senders) <= in_flight
        assert all(len(sender.wire.items) <= max_batch for sender in senders)
        roll = chance.random()
        if to_come and roll < 0.5:
            here.call(to_come.pop(0), timeout_s=chance.choice([1000.0, 1000.0, 500.0]))
        elif roll < 0.6:
            caller = chance.choice(here.callers) if here.callers else None
            if caller and not caller.done:
                cancelled.add(caller)
                caller.fail(asyncio.CancelledError())
        elif senders and roll < 0.9:
            _end_one(here, chance.choice(senders), bad, chance)
        else:
            _let_time_pass(here, chance)
    for value, caller in enumerate(here.callers):
        if caller in cancelled:
            assert isinstance(caller.error, asyncio.CancelledError)
        elif caller.result:
            assert caller.result.outputs["x"][0, 0] == value
        else:
            assert isinstance(caller.error, ServerUnavailable) or value in bad
    assert not here.left()


def _end_one(here: Any, sender: Any, bad: set[float], chance: random.Random) -> None:
    here.now += 0.003
    if bad & set(sender.wire.values):
        sender.fail(InferenceError("m", found="bad"))
    elif chance.random() < 0.1:
        sender.fail(ServerUnavailable("m", found="gone"))
    else:
        sender.answer()


def _let_time_pass(here: Any, chance: random.Random) -> None:
    """Somebody looks who was woken, or the clock goes on to the next who wants to look."""
    waiting = [caller for caller in here.callers if caller.step is caller.item]
    chance.shuffle(waiting)
    if any(caller.woken() for caller in waiting) or here.senders() or not waiting:
        return
    soonest = min(waiting, key=lambda caller: caller.item.seconds)
    assert soonest.item.seconds < 1.0, "everybody sleeps and nobody will wake them"
    here.now += soonest.item.seconds + 1e-6
    soonest.look()
