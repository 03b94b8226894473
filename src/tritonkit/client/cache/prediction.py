"""The cache of a client: this process's memory, then Redis, then the server, once for equal calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tritonkit.client.cache.codec import decode, encode
from tritonkit.client.cache.entry import Kept, frozen, handed_out
from tritonkit.client.cache.keys import Inputs, is_pinned, key_of
from tritonkit.client.cache.local import Memory
from tritonkit.client.cache.redis_store import Shared
from tritonkit.client.cache.single_flight import Flight, Flights, Follow, GaveUp, Landed
from tritonkit.errors import DeadlineExceeded, TritonkitError

if TYPE_CHECKING:
    from tritonkit.client.cache.settings import Cache
    from tritonkit.client.reply import Origin
    from tritonkit.client.steps import Steps

__all__ = ["PredictionCache"]


class PredictionCache:
    """Answers by key, for the threads or the tasks of one client.

    Args:
        settings: how much, for how long, shared with whom.
        clock: a monotonic clock, in seconds; deadlines are moments of it.

    Raises:
        UsageError: the extra `cache` is not installed, or the Redis client refuses the URL.
    """

    def __init__(self, settings: Cache, clock: Callable[[], float] = time.monotonic) -> None:
        self._namespace = settings.namespace
        self._clock = clock
        self._memory = Memory(settings, clock)
        url = settings.redis
        self._shared = None if url is None else Shared(url, settings, clock)
        self._redis_timeout_s = settings.redis_timeout_s
        self._flights = Flights()
        self._versions: dict[str, str] = {}

    def key(
        self, model: str, version: str, inputs: Inputs, outputs: tuple[str, ...] | None = None
    ) -> bytes:
        """The key of a call; equal calls have equal keys in every process.

        Args:
            model: the model's name.
            version: the version asked for, empty for the server's choice.
            inputs: datatype and checked array by input name, in any order.
            outputs: the outputs asked for, None for all.

        Raises:
            ValueError: an array is not of its datatype.
        """
        return key_of(self._namespace, model, version, inputs, outputs)

    def peek(self, key: bytes) -> Kept | None:
        """The answer in this process's memory, if one may be used."""
        kept = self._memory.get(key)
        if kept is None or self._outdated(key, kept):
            return None
        return handed_out(kept)

    def fetch(
        self,
        key: bytes,
        make: Callable[[], Steps[Kept]],
        *,
        deadline: float | None = None,
        where: str = "cache",
    ) -> Steps[tuple[Kept, Origin]]:
        """The answer for a key: kept here, kept in Redis, or made and then kept.

        Callers with the same key at the same time share one call: the first makes it, the others wait
        for its answer or its error. If the first was stopped or ran out of its own time, one of the
        others makes it; who meets that twice makes the call alone.

        Args:
            key: from `key`.
            make: gives the steps of the call itself; called at most once here, and not at all for a
                kept answer. Its errors are raised as they are, and never kept.
            deadline: the moment at which to stop waiting for another's call; nor is Redis asked when less
                than `redis_timeout_s` is left.
            where: what is called, for the message of a `DeadlineExceeded`.

        Returns:
            The answer with read-only arrays, and where it came from; who followed another's call gets
            that call's origin.
        """
        for _ in range(2):
            kept = self.peek(key)
            if kept is not None:
                return kept, "l1"
            mine = Flight(key)
            try:
                flight = self._flights.join(mine)
                if flight is mine:
                    return (yield from self._lead(mine, make, deadline))
            finally:  # however it ends: interrupted anywhere, or thrown away half-way
                self._flights.land(mine)
            outcome = yield Follow(flight, deadline, self._clock, where)
            if isinstance(outcome, Landed):
                return handed_out(outcome.kept), outcome.origin
            if not isinstance(outcome, GaveUp):
                raise _copy(outcome)
        return (yield from self._make(key, make))

    def saw(self, model: str, version: str) -> None:
        """Note the version a server answered with where it had the choice.

        Answers of any other version of the model are not used for calls that name none. Do not tell
        it of calls that named a version.
        """
        self._versions[model] = version

    def clear(self) -> None:
        """Forget what this process's memory holds, not what Redis does."""
        self._memory.clear()

    def close(self) -> None:
        """Close the connections threads opened; closing twice is closing once."""
        if self._shared is not None:
            self._shared.close()

    async def aclose(self) -> None:
        """Close all connections; in the event loop that used them."""
        if self._shared is not None:
            await self._shared.aclose()

    def _lead(
        self, flight: Flight, make: Callable[[], Steps[Kept]], deadline: float | None
    ) -> Steps[tuple[Kept, Origin]]:
        """Fetch for all who follow; a `DeadlineExceeded` is this caller's own, they may have more time."""
        key = flight.key
        try:
            landed = yield from self._look(key, deadline)
            landed = landed or Landed(frozen((yield from make())), "server")
            self._keep(key, *landed)
        except Exception as error:
            if not isinstance(error, DeadlineExceeded):
                flight.outcome = error
            raise
        flight.outcome = landed
        self._flights.land(flight)  # before Redis is written to: nobody needs to wait for that
        if landed.origin == "server":
            yield from self._share(key, landed.kept, deadline)
        return handed_out(landed.kept), landed.origin

    def _make(self, key: bytes, make: Callable[[], Steps[Kept]]) -> Steps[tuple[Kept, Origin]]:
        kept = frozen((yield from make()))
        self._keep(key, kept, "server")
        return handed_out(kept), "server"

    def _look(self, key: bytes, deadline: float | None) -> Steps[Landed | None]:
        # Again here: the flight before may have landed since this caller looked.
        kept = self.peek(key)
        if kept is not None:
            return Landed(kept, "l1")
        if self._shared is None or not self._time_for_redis(deadline):
            return None
        data = yield from self._shared.get(key)
        kept = None if data is None else decode(data, key)
        if kept is None or self._outdated(key, kept):
            return None
        return Landed(kept, "l2")

    def _keep(self, key: bytes, kept: Kept, origin: Origin) -> None:
        if not is_pinned(key):
            # From Redis only where nothing is known: what a server said counts for more.
            if origin == "server":
                self.saw(kept.model, kept.version)
            else:
                self._versions.setdefault(kept.model, kept.version)
        if origin != "l1":
            self._memory.put(key, kept)

    def _share(self, key: bytes, kept: Kept, deadline: float | None) -> Steps[None]:
        if self._shared is None or not self._time_for_redis(deadline):
            return
        try:
            data = encode(kept, key)
        except (
            ValueError
        ):  # the caller's answer is there: that it cannot be shared must not lose it
            return
        yield from self._shared.put(key, data)

    def _time_for_redis(self, deadline: float | None) -> bool:
        return deadline is None or deadline - self._clock() >= self._redis_timeout_s

    def _outdated(self, key: bytes, kept: Kept) -> bool:
        known = self._versions.get(kept.model, kept.version)
        return known != kept.version and not is_pinned(key)


def _copy(error: Exception) -> Exception:
    """The same error for another caller: one object raised in two threads would mix their tracebacks."""
    if not isinstance(error, TritonkitError):
        return error
    copy = type(error)(
        error.where,
        found=error.found,
        wanted=error.wanted,
        todo=error.todo,
        details=error.details,
    )
    copy.__cause__ = error.__cause__
    return copy
