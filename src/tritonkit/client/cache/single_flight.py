"""One call for all who make the same call at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tritonkit.client.waiting import Event
from tritonkit.errors import DeadlineExceeded

if TYPE_CHECKING:
    from tritonkit.client.cache.entry import Entry
    from tritonkit.client.reply import Origin
    from tritonkit.client.steps import Steps

__all__ = ["Fetched", "Flight", "SingleFlight"]


class Fetched(NamedTuple):
    """The answer, and where it came from."""

    entry: Entry
    origin: Origin


Outcome: TypeAlias = Fetched | Exception | None
"""None: the leader ran out of time or was stopped, which says nothing about the call."""


class Flight:
    """A call under way; its leader sets `outcome` before it lands."""

    __slots__ = ("key", "landed", "outcome")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.outcome: Outcome = None
        self.landed = Event()


class SingleFlight:
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
        """End a flight that was led, once: its followers get the outcome, the next caller leads."""
        if self._flights.get(mine.key) is mine:
            del self._flights[mine.key]
            mine.landed.set()

    def follow(self, flight: Flight, timeout_s: float, where: str) -> Steps[Outcome]:
        """Wait for a flight that another caller leads; its outcome.

        Raises:
            DeadlineExceeded: it did not land within `timeout_s`.
        """
        if not (yield from flight.landed.wait_for(timeout_s)):
            raise DeadlineExceeded(
                where,
                found="no answer in time from the same call of another caller, under way already",
                todo="allow more time",
            )
        return flight.outcome
