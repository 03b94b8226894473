"""One call for all who ask the same at the same time."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tritonkit.errors import DeadlineExceeded

if TYPE_CHECKING:
    from tritonkit.client.cache.entry import Kept
    from tritonkit.client.reply import Origin

__all__ = ["Flight", "Flights", "Follow", "GaveUp", "Landed"]


class GaveUp:
    """The leader ran out of time or was stopped: that says nothing about the call."""


class Landed(NamedTuple):
    """The answer, and where it came from."""

    kept: Kept
    origin: Origin


Outcome: TypeAlias = Landed | GaveUp | Exception


class Flight:
    """A call under way; whoever leads it sets `outcome` before it lands."""

    __slots__ = ("key", "landed", "outcome")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.outcome: Outcome = GaveUp()
        # Holds an error as a result, not as an error: nobody may be there to take note of it.
        self.landed: concurrent.futures.Future[Outcome] = concurrent.futures.Future()


class Flights:
    """The calls under way, by key.

    Without a lock: single operations of a dictionary are atomic, and a generator that the garbage
    collector closes may land its flight in the middle of anything this thread does.
    """

    __slots__ = ("_flights",)

    def __init__(self) -> None:
        self._flights: dict[bytes, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def join(self, mine: Flight) -> Flight:
        """The flight under way for this key, or `mine` if there is none: then the caller leads."""
        return self._flights.setdefault(mine.key, mine)

    def land(self, mine: Flight) -> None:
        """End a flight that was led, once: those who follow get its outcome, the next to ask leads anew."""
        if self._flights.get(mine.key) is mine:
            del self._flights[mine.key]
            mine.landed.set_result(mine.outcome)


class Follow(NamedTuple):
    """Wait for a flight that somebody else leads; gives its outcome.

    Raises:
        DeadlineExceeded: `deadline`, a moment of `clock`, came first.
    """

    flight: Flight
    deadline: float | None
    clock: Callable[[], float]
    where: str

    def block(self) -> Outcome:
        """Wait in this thread."""
        try:
            return self.flight.landed.result(self._left_s())
        except concurrent.futures.TimeoutError:
            raise self._late() from None

    async def wait(self) -> Outcome:
        """Wait in this task; cancelling it harms neither the leader nor others who follow."""
        outcome = asyncio.shield(asyncio.wrap_future(self.flight.landed))
        try:
            async with asyncio.timeout(self._left_s()):
                return await outcome
        except TimeoutError:
            raise self._late() from None

    def _left_s(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - self.clock())

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(
            self.where,
            found="no answer in time from the same call of another caller, under way already",
            todo="allow more time",
        )
