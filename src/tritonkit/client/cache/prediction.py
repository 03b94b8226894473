"""The cache of a client: this process's memory, then Redis, then the server, once for equal calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from tritonkit.client.cache.entry import Entry, frozen, is_pinned, key_of
from tritonkit.client.cache.local import LocalStore
from tritonkit.client.cache.redis_store import RedisStore
from tritonkit.client.waiting import Event
from tritonkit.errors import DeadlineExceeded, copy_error

if TYPE_CHECKING:
    from tritonkit.client.cache.settings import Cache
    from tritonkit.client.reply import Origin
    from tritonkit.client.steps import Steps

__all__ = ["PredictionCache"]

Fetched: TypeAlias = "tuple[Entry, Origin]"


class _Flight:
    """A call that one caller makes for all callers with the same call at that time."""

    __slots__ = ("landed", "outcome")

    def __init__(self) -> None:
        self.landed = Event()
        self.outcome: Fetched | Exception | None = None
        """The result or error; None: the leader ran out of time or was stopped, which says nothing about the call."""


class PredictionCache:
    """Answers by key, for the threads or the tasks of one client.

    Args:
        settings: sizes, lifetimes and sharing.
        clock: a monotonic clock, in seconds; deadlines are moments of it.

    Raises:
        UsageError: the extra `cache` is not installed, or the Redis client refuses the URL.
    """

    def __init__(self, settings: Cache, clock: Callable[[], float] = time.monotonic) -> None:
        self._namespace = settings.namespace
        self._clock = clock
        self._local = LocalStore(settings, clock)
        url = settings.redis
        self._redis = None if url is None else RedisStore(url, settings, clock)
        self._redis_timeout_s = settings.redis_timeout_s
        # Without a lock: single operations of a dictionary are atomic, and a generator that the garbage
        # collector closes may land its flight in the middle of anything this thread does.
        self._flights: dict[bytes, _Flight] = {}
        self._versions: dict[str, str] = {}

    def key(self, version: str, message: Iterable[bytes | memoryview]) -> bytes:
        """The key of a call, see `key_of`."""
        return key_of(self._namespace, version, message)

    def peek(self, key: bytes) -> Entry | None:
        """The answer in this process's memory, if it may be used. Its dictionary is the caller's."""
        entry = self._local.get(key)
        return None if entry is None or self._outdated(key, entry) else _own(entry)

    def fetch(
        self, key: bytes, make: Callable[[], Steps[Entry]], *, deadline: float = math.inf, where: str = "cache"
    ) -> Steps[Fetched]:
        """The answer for a key, with read-only arrays, and its origin.

        Callers with the same key at the same time share one call: the first makes it, the others wait
        for its answer or its error. If the first was stopped or ran out of time, one of the
        others makes it; a caller that meets this twice makes the call alone.

        Args:
            key: the call's key, as `key` returns it.
            make: gives the steps of the call itself; called at most once here, and not at all for a
                cached answer. Its errors are raised as they are, and never cached.
            deadline: the moment at which to stop waiting for another's call; nor is Redis used when less
                than `redis_timeout_s` is left.
            where: the called model, for the message of a `DeadlineExceeded`.
        """
        for _ in range(2):
            mine = _Flight()
            try:
                flight = self._flights.setdefault(key, mine)
                if flight is mine:
                    return (yield from self._lead(key, mine, make, deadline))
            finally:  # however it ends: interrupted anywhere, or thrown away half-way
                self._land(key, mine)
            if not (yield from flight.landed.wait_for(deadline - self._clock())):
                raise DeadlineExceeded(
                    where,
                    found="no answer in time from the same call of another caller, under way already",
                    todo="allow more time",
                )
            outcome = flight.outcome
            if isinstance(outcome, Exception):
                raise copy_error(outcome)
            if outcome is not None:
                break
        else:
            outcome = yield from self._make(key, make)
        entry, origin = outcome
        return _own(entry), origin

    def saw(self, model: str, version: str) -> None:
        """Note the version that a server chose: answers of other versions are not used then."""
        self._versions[model] = version

    def close(self) -> None:
        """Close the connections threads opened; closing twice is closing once."""
        if self._redis is not None:
            self._redis.close()

    async def aclose(self) -> None:
        """Close all connections; in the event loop that used them."""
        if self._redis is not None:
            await self._redis.aclose()

    def _lead(self, key: bytes, flight: _Flight, make: Callable[[], Steps[Entry]], deadline: float) -> Steps[Fetched]:
        """Fetch for all who follow; a `DeadlineExceeded` is this caller's alone: they may have more time."""
        try:
            cached = yield from self._look(key, deadline)
            entry, origin = cached or (yield from self._make(key, make))
        except DeadlineExceeded:
            raise
        except Exception as error:
            flight.outcome = error
            raise
        flight.outcome = entry, origin
        self._land(key, flight)  # before Redis is written to: no follower needs to wait for that
        if origin == "server" and self._redis is not None and self._has_time(deadline):
            yield from self._redis.put(key, entry)
        return _own(entry), origin

    def _land(self, key: bytes, mine: _Flight) -> None:
        """End a flight that was led, once: its followers get the outcome, the next caller leads."""
        if self._flights.get(key) is mine:
            del self._flights[key]
            mine.landed.set()

    def _look(self, key: bytes, deadline: float) -> Steps[Fetched | None]:
        entry = self.peek(key)
        if entry is not None:
            return entry, "l1"
        if self._redis is None or not self._has_time(deadline):
            return None
        entry = yield from self._redis.get(key)
        if entry is None or self._outdated(key, entry):
            return None
        if not is_pinned(key):  # what a server said counts for more
            self._versions.setdefault(entry.model, entry.version)
        self._local.put(key, entry)
        return entry, "l2"

    def _make(self, key: bytes, make: Callable[[], Steps[Entry]]) -> Steps[Fetched]:
        entry = frozen((yield from make()))
        if not is_pinned(key):
            self.saw(entry.model, entry.version)
        self._local.put(key, entry)
        return entry, "server"

    def _has_time(self, deadline: float) -> bool:
        """Whether enough time is left for Redis."""
        return deadline - self._clock() >= self._redis_timeout_s

    def _outdated(self, key: bytes, entry: Entry) -> bool:
        current = self._versions.get(entry.model, entry.version)
        return current != entry.version and not is_pinned(key)


def _own(entry: Entry) -> Entry:
    """A copy for one caller, which may change the dictionary but not the arrays."""
    model, version, outputs = entry
    return Entry(model, version, dict(outputs))
