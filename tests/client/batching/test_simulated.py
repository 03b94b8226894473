"""Callers' results over thousands of calls on a simulated clock, free of the machine's noise."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count
from statistics import quantiles
from typing import Any

import pytest

Make = Callable[..., Any]
SERVICE_S = 0.003
THINK_S = 0.00005


class Simulation:
    """Callers of a room whose requests take 3 ms each, however large."""

    def __init__(self, room: Any) -> None:
        self.room = room
        self.chance = random.Random(1)
        self.waited_ms: list[float] = []
        self.requests = 0
        self._events: list[Any] = []
        self._order = count()
        self._started_at = room.now

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """Do something at a moment."""
        heapq.heappush(self._events, (moment, next(self._order), act))

    def run(self, calls: int) -> None:
        """Run until this many calls were answered."""
        while len(self.waited_ms) < calls:
            moment, _, act = heapq.heappop(self._events)
            self.room.now = max(self.room.now, moment)
            act()

    def call(self, then: Callable[[], None] = lambda: None) -> None:
        """One call; `then` is done after its answer."""
        self._follow(self.room.call(0), then)
        self._wake()

    def per_s(self) -> float:
        """Calls a second."""
        return len(self.waited_ms) / (self.room.now - self._started_at)

    def batch(self) -> float:
        """The mean size of a batch."""
        return len(self.waited_ms) / self.requests

    def _follow(self, caller: Any, then: Callable[[], None]) -> None:
        """Wait for whatever the caller's next step needs."""
        caller.follow = lambda: self._follow(caller, then)
        step = caller.step
        if caller.done:
            self.waited_ms.append(caller.result.waited_s * 1e3)
            self.room.callers.remove(caller)
            then()
        elif step is caller.item:
            caller.nap = nap = object()
            self.at(self.room.now + step.seconds, lambda: self._look(caller, nap))
        else:
            self.requests += 1
            self.at(self.room.now + SERVICE_S, lambda: self._answer(caller))

    def _look(self, caller: Any, nap: object) -> None:
        if caller.nap is nap and not caller.done and caller.step is caller.item:
            caller.look()
            caller.follow()

    def _answer(self, caller: Any) -> None:
        caller.answer()
        caller.follow()
        self._wake()

    def _wake(self) -> None:
        while woken := [caller for caller in self.room.callers if caller.woken()]:
            for caller in woken:
                caller.nap = None
                caller.follow()


def closed(room: Make, callers: int, calls: int = 1500, **settings: Any) -> Simulation:
    """This many callers, each of which calls again soon after its answer."""
    simulation = Simulation(room(**settings))

    def again() -> None:
        wait = simulation.chance.expovariate(1 / THINK_S)
        simulation.at(simulation.room.now + wait, lambda: simulation.call(again))

    for _ in range(callers):
        again()
    simulation.run(calls)
    return simulation


def opened(room: Make, per_s: float, calls: int = 1500, **settings: Any) -> Simulation:
    """Callers that come at random, whether the others were answered or not."""
    simulation = Simulation(room(**settings))

    def arrive() -> None:
        wait = simulation.chance.expovariate(per_s)
        simulation.at(simulation.room.now + wait, arrive)
        simulation.call()

    arrive()
    simulation.run(calls)
    return simulation


@pytest.mark.parametrize("callers", [1, 2])
def test_one_or_two_callers_never_wait(room: Make, callers: int) -> None:
    """Nothing is added to their calls, and nothing taken from their rate."""
    simulation = closed(room, callers)
    assert max(simulation.waited_ms) == 0.0
    assert simulation.batch() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("callers", [3, 4, 8, 16, 64])
def test_callers_in_a_loop_wait_for_little(room: Make, callers: int) -> None:
    """Batches are half of them, and nearly everyone waits less than a tenth of a request's time."""
    simulation = closed(room, callers)
    *_, p95 = quantiles(simulation.waited_ms, n=20)
    assert p95 < 0.15 * SERVICE_S * 1e3 + 0.1 * callers / 2
    assert simulation.batch() > 0.8 * callers / 2
    assert simulation.per_s() > 0.7 * callers / (SERVICE_S + 0.0001 * callers)


@pytest.mark.parametrize("per_s", [50, 400, 1000, 5000])
def test_random_arrivals_stay_within_the_target(room: Make, per_s: float) -> None:
    """99 of 100 calls take less than the target of 10 ms; seldom callers hardly wait."""
    simulation = opened(room, per_s)
    percentiles = quantiles(simulation.waited_ms, n=100)
    assert percentiles[98] + SERVICE_S * 1e3 < 10.0
    if per_s == 50:
        assert percentiles[89] == 0.0
    if per_s == 5000:
        assert simulation.batch() > 10
