"""The order in which one line of threads is woken, and that a crowd of them leaves nothing behind."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from tritonkit.client.batching import Adaptive, Batcher, Item
from tritonkit.client.steps import Sleep, Step, run_blocking
from tritonkit.errors import DeadlineExceeded, InferenceError, ServerUnavailable

BAD = 13.0
THREADS = 32
SECONDS = 1.2
PATIENCE_S = 8.0  # less than the long timeouts: who is woken by its own deadline was forgotten
TIMEOUTS_S = (0.0005, 0.002, 0.005, 20.0, 20.0, 20.0)


def woken(callers: Sequence[Any]) -> list[int]:
    """The waiting callers that were woken since the last check, by their places."""
    order = []
    for at, caller in enumerate(callers):
        if not caller.done:
            caller.item.seconds = 0.0
            if caller.item.block():
                order.append(at)
    return order


def two_batches(room: Any) -> tuple[Any, list[Any], list[Any]]:
    """A room with two batches of three under way; the callers of each, the sender first."""
    here = room(max_batch=3, in_flight=2)
    callers = [here.call(value) for value in range(8)]
    callers[0].answer()
    callers[1].answer()
    here.settle()
    assert [sender.wire.values for sender in here.senders()] == [[2, 3, 4], [5, 6, 7]]
    return here, callers[2:5], callers[5:8]


def test_each_thread_is_woken_when_the_one_before_leaves(room: Callable[..., Any]) -> None:
    """One at a time, in the order in which they came."""
    _, (leader, *others), _ = two_batches(room)
    leader.answer()
    for at, caller in enumerate(others):
        assert woken(others) == [at]
        assert woken(others) == []
        caller.look()
        assert caller.result is not None


def test_a_second_batch_stands_behind_the_first(room: Callable[..., Any]) -> None:
    """The last caller of the first batch wakes the first of the second, so only one line runs."""
    _, (leader, *others), (second, *behind) = two_batches(room)
    leader.answer()
    line = [*others, *behind]
    assert woken(line) == [0]
    second.answer()
    assert woken(line[1:]) == []
    for at, caller in enumerate(line[:-1]):
        caller.look()
        assert woken(line) == [at + 1]


def test_who_leaves_without_having_been_woken_is_skipped(room: Callable[..., Any]) -> None:
    """Callers whose own time was up have their answer and start no second line next to the running one."""
    _, (leader, *others), (second, *behind) = two_batches(room)
    leader.answer()
    line = [*others, *behind]
    assert woken(line) == [0]
    second.answer()
    for early in (line[1], line[3]):
        early.look()
        assert early.result is not None
        assert woken(line[1:]) == []
    line[0].look()
    assert woken(line) == [2]


def test_an_empty_line_starts_again(room: Callable[..., Any]) -> None:
    """After the last has left, the first of the next batch is woken immediately."""
    _, (leader, *others), (second, *behind) = two_batches(room)
    for sender, rest in ((leader, others), (second, behind)):
        sender.answer()
        for at, caller in enumerate(rest):
            assert woken(rest) == [at]
            caller.look()


def test_one_that_is_gone_when_the_answer_comes_is_skipped(room: Callable[..., Any]) -> None:
    """Also if it would have been the first: the line starts with the next."""
    _, (leader, gone, other), _ = two_batches(room)
    gone.fail(KeyboardInterrupt())
    leader.answer()
    assert woken([gone, other]) == [1]


class Server:
    """Answers with what it got, in up to 2 ms; refuses a batch that holds a 13, and sometimes any."""

    def __init__(self) -> None:
        self.chance = random.Random(2)

    def send(self, batch: Sequence[Item], deadline: float) -> Generator[Step, Any, Sequence[Any]]:
        """The steps of one request."""
        values = [float(item.arrays["x"][0, 0]) for item in batch]
        yield Sleep(min(self.chance.random() * 0.002, max(0.0, deadline - time.monotonic())))
        if time.monotonic() >= deadline:
            raise DeadlineExceeded("server", found="too slow")
        if BAD in values:
            raise InferenceError("server", found="a 13")
        if self.chance.random() < 0.03:
            raise ServerUnavailable("server", found="gone")
        return values


class Member:
    """A thread that calls until the time is over; some calls it gives up halfway."""

    def __init__(self, batcher: Batcher, seed: int, until: float) -> None:
        self.chance = random.Random(seed)
        self.answered = 0
        self.stray: list[str] = []
        self._batcher = batcher
        self._own = 100.0 + seed
        self._until = until
        self.thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while time.monotonic() < self._until:
            value = BAD if self.chance.random() < 0.02 else self._own
            try:
                self._call(value, self.chance.choice(TIMEOUTS_S))
            except BaseException as error:
                self.stray.append(repr(error))

    def _call(self, value: float, timeout_s: float) -> None:
        item = Item({"x": np.full((1, 1), value, np.float32)}, time.monotonic() + timeout_s)
        steps = self._batcher.join(item)
        if self.chance.random() < 0.1:
            self._give_up(steps)
            return
        try:
            got = run_blocking(steps)
        except DeadlineExceeded:
            assert timeout_s < 1.0, "nobody woke it"
        except InferenceError:
            assert value == BAD
        except ServerUnavailable:
            pass
        else:
            assert got == value != BAD
            self.answered += 1

    def _give_up(self, steps: Generator[Step, Any, Any]) -> None:
        """Close the generator after some steps, as an interrupt between two of them would."""
        try:
            for step in steps:
                if self.chance.random() < 0.5:
                    break
                step.block()
        except (DeadlineExceeded, InferenceError, ServerUnavailable):
            pass
        finally:
            steps.close()


def test_a_crowd_with_short_times_errors_and_interrupts_leaves_nothing_behind() -> None:
    """Everyone ends with its own value or an error meant for it, in time; all counts are back at 0."""
    batcher = Batcher(Adaptive(in_flight=2), 8, Server().send, idempotent=True)
    until = time.monotonic() + SECONDS
    members = [Member(batcher, seed, until) for seed in range(THREADS)]
    for member in members:
        member.thread.start()
    for member in members:
        member.thread.join(timeout=max(0.0, until + PATIENCE_S - time.monotonic()))
    assert not any(member.thread.is_alive() for member in members), "somebody was never woken"
    assert [stray for member in members for stray in member.stray] == []
    assert sum(member.answered for member in members) > THREADS
    assert not [*batcher._queue, *batcher._flying, *batcher._answered]
    assert batcher._aboard == 0
