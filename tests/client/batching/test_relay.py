"""Who is woken when, in one line of threads; and that nothing is left behind by a crowd of them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from tritonkit.client.batching import Adaptive, Batcher, Item
from tritonkit.client.batching.relay import Relay
from tritonkit.client.steps import Sleep, Step, run_blocking
from tritonkit.errors import DeadlineExceeded, InferenceError, ServerUnavailable

BAD = 13.0
THREADS = 32
SECONDS = 1.2
PATIENCE_S = 8.0  # less than the long timeouts: who is woken by its own deadline was forgotten
TIMEOUTS_S = (0.0005, 0.002, 0.005, 20.0, 20.0, 20.0)


def items(count: int) -> list[Item]:
    """Sleeping callers."""
    return [Item({}, 0.0) for _ in range(count)]


def woken(among: Sequence[Item]) -> list[int]:
    """Which of them wake now, by their places; each sleeps again, or would if it were not to leave."""
    for item in among:
        item.seconds = 0.0
    return [at for at, item in enumerate(among) if item.block()]


def test_each_is_woken_when_the_one_before_leaves() -> None:
    """One at a time, in the line's order."""
    relay, line = Relay(), items(3)
    relay.wake(line)
    for at in range(3):
        assert woken(line) == [at]
        assert woken(line) == []
        relay.leave(line[at])
    assert woken(line) == []


def test_a_second_batch_stands_behind_the_first() -> None:
    """Its first is woken by the last of the batch before, not beside it."""
    relay, first, second = Relay(), items(2), items(2)
    both = [*first, *second]
    relay.wake(first)
    assert woken(both) == [0]
    relay.wake(second)
    assert woken(both) == []
    for at in range(3):
        relay.leave(both[at])
        assert woken(both) == [at + 1]


def test_one_whose_time_was_up_is_skipped() -> None:
    """Wherever in the line they stood, those who left are not waited for."""
    relay, line = Relay(), items(5)
    relay.wake(line)
    assert woken(line) == [0]
    for at in (1, 2, 4):
        relay.leave(line[at])
    assert woken(line[1:]) == []
    relay.leave(line[0])
    assert woken(line[1:]) == [2]
    relay.leave(line[3])
    assert woken(line[1:]) == []


def test_one_that_left_before_it_stood_in_line_is_skipped() -> None:
    """Also if it would have been the first: the line starts with the next."""
    relay, line = Relay(), items(2)
    relay.leave(line[0])
    relay.wake(line)
    assert woken(line) == [1]


def test_who_leaves_without_having_been_woken_starts_no_second_line() -> None:
    """A leader, or one whose time was up: those behind the one who runs still sleep."""
    relay, line, (leader,) = Relay(), items(3), items(1)
    relay.wake(line)
    assert woken(line) == [0]
    relay.leave(leader)
    assert woken(line[1:]) == []
    relay.leave(line[2])
    assert woken(line[1:]) == []
    relay.leave(line[0])
    assert woken(line[1:]) == [0]


def test_an_empty_line_starts_anew() -> None:
    """After the last has left, and after a line in which nobody was left, the next is woken at once."""
    relay = Relay()
    for gone in (False, True, False):
        line = items(2)
        if gone:
            for item in line:
                relay.leave(item)
        relay.wake(line)
        assert woken(line) == ([] if gone else [0])
        relay.leave(line[0])
        relay.leave(line[1])
    relay.wake([])
    last = items(1)
    relay.wake(last)
    assert woken(last) == [0]


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
    assert [batcher._callers, batcher._flying, batcher._aboard] == [0, 0, 0]
    assert [len(batcher._queue), len(batcher._sealed)] == [0, 0]
    assert batcher.retire()
