"""Callers driven by hand: a clock that stands still, requests that are answered when told."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from tritonkit.client.batching import Adaptive, Batcher, Item


class Answer(NamedTuple):
    """The answer for one item: its own values, and the size of the request."""

    outputs: Any
    batch_size: int


class Joined(NamedTuple):
    """A caller's result, and its wait until the batch left."""

    outputs: Any
    batch_size: int
    waited_s: float


class Wire:
    """The step of one request: remembers who is in it."""

    def __init__(self, items: Sequence[Item], deadline: float) -> None:
        self.items = list(items)
        self.deadline = deadline

    def block(self) -> Any:
        """Never done by a runner."""
        raise NotImplementedError

    async def wait(self) -> Any:
        """Never done by a runner."""
        raise NotImplementedError

    @property
    def values(self) -> list[float]:
        """The value each item carries."""
        return [float(item.arrays["x"][0, 0]) for item in self.items]


class Caller:
    """One caller of a batcher: its steps so far, and how it ended."""

    def __init__(self, room: Room, item: Item) -> None:
        self.room = room
        self.item = item
        self.result: Joined | None = None
        self.error: BaseException | None = None
        self._steps = room.batcher.join(item)
        self.step: Any = None
        self._advance(lambda: next(self._steps))

    @property
    def done(self) -> bool:
        """Whether it has a result or an error."""
        return self.result is not None or self.error is not None

    @property
    def wire(self) -> Wire:
        """The request it is sending."""
        assert isinstance(self.step, Wire), self.step
        return self.step

    def look(self) -> None:
        """Wake, as if the sleep had ended."""
        assert self.step is self.item
        self._advance(lambda: self._steps.send(None))

    def woken(self) -> bool:
        """Whether its sleep was ended; if so it looks."""
        if self.done or self.step is not self.item:
            return False
        seconds, self.item.seconds = self.item.seconds, 0.0
        woken = self.item.block()
        self.item.seconds = seconds
        if woken:
            self.look()
        return woken

    def answer(self) -> None:
        """The request it sends is answered: each item gets its own value back."""
        items = self.wire.items
        outcomes = [Answer(item.arrays, len(items)) for item in items]
        self._advance(lambda: self._steps.send(outcomes))

    def fail(self, error: BaseException) -> None:
        """The step it is in ends with an error."""
        self._advance(lambda: self._steps.throw(error))

    def _advance(self, move: Callable[[], Any]) -> None:
        try:
            self.step = move()
        except StopIteration as stop:
            waited_s = self.room.sent_at[self.item] - self.item.joined_at
            self.step, self.result = None, Joined(*stop.value, waited_s)
        except BaseException as error:
            self.step, self.error = None, error


class Room:
    """A batcher whose clock and requests are moved by hand."""

    def __init__(self, settings: Adaptive, max_batch_size: int = 64, idempotent: bool = True) -> None:
        self.now = 100.0
        self.callers: list[Caller] = []
        self.kind = Caller
        self.sent: list[float] = []
        self.sent_at: dict[Item, float] = {}
        self.batcher = Batcher(settings, max_batch_size, self._send, lambda: self.now, idempotent=idempotent)

    def _send(self, items: Sequence[Item], deadline: float) -> Generator[Wire, Any, list[Answer]]:
        wire = Wire(items, deadline)
        self.sent += wire.values
        self.sent_at |= dict.fromkeys(items, self.now)
        outcomes: list[Answer] = yield wire
        return outcomes

    def call(self, value: float, timeout_s: float = 30.0) -> Caller:
        """Somebody calls, after a tenth of a millisecond."""
        self.now += 0.0001
        item = Item({"x": np.full((1, 2), value, np.float32)}, self.now + timeout_s)
        self.callers.append(self.kind(self, item))
        return self.callers[-1]

    def settle(self) -> None:
        """Let woken callers look, until there are none."""
        while any(caller.woken() for caller in self.callers):
            pass

    def until_sent(self) -> None:
        """Let woken callers look; while none of them sends, time passes and all look."""
        self.settle()
        while not self.senders():
            self.now += 0.02
            for caller in self.callers:
                if caller.step is caller.item:
                    caller.look()
            self.settle()

    def left(self) -> list[Any]:
        """The callers that are still in the batcher, its batches under way and its waiting items."""
        its = self.batcher
        return [*its._queue, *its._flying, *([its._aboard] if its._aboard else []), *its._answered]

    def senders(self) -> list[Caller]:
        """Callers that are sending a request."""
        return [caller for caller in self.callers if isinstance(caller.step, Wire)]


@pytest.fixture(scope="session")
def room() -> Callable[..., Room]:
    """Make a room: `room(max_batch_size=64, **settings)`; calls may run twice unless told otherwise."""

    def make(max_batch_size: int = 64, idempotent: bool = True, **settings: Any) -> Room:
        return Room(Adaptive(**settings), max_batch_size, idempotent)

    return make
