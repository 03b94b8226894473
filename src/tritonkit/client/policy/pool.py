"""Which of the servers gets the next call: of two drawn at random, the one with less to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from tritonkit.client.policy.breaker import Circuit
from tritonkit.client.policy.replica import Attempt, Replica
from tritonkit.client.policy.settings import Breaker

__all__ = ["Connect", "Pool", "Target"]

Connect = Callable[[str, str | None], Any]
"""`connect(address, server_name)`: a transport, its connection not yet opened; the name is for TLS."""

_ALIKE = 1.2
"""Servers whose scores differ by less than this factor are alike: chance decides."""

_NO_ERA = -1
"""Of a server that is only held: no circuit's."""


class Target(NamedTuple):
    """Where a server listens."""

    address: str
    server_name: str | None = None


class Pool:
    """The servers of one client; safe to share between threads, its lock is held for moments only."""

    def __init__(self, connect: Connect, breaker: Breaker | None, rng: Random) -> None:
        self._connect = connect
        self._breaker = breaker
        self._random = rng.random
        self._replicas: list[Replica] = []
        self.retired: list[Replica] = []
        """Those that were removed and are to be closed once they have no calls under way."""
        self._lock = threading.Lock()
        self._membership = threading.Lock()
        self._closed = False

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Those that get calls now, for messages and tests."""
        return tuple(self._replicas)

    @property
    def idle_retired(self) -> bool:
        """Whether `take_retired` has something to give."""
        return any(not replica.in_flight for replica in self.retired)

    def pick(
        self, now: float, tried: tuple[Replica, ...] = (), only: Replica | None = None
    ) -> Attempt | None:
        """Begin a call; None when every circuit is open.

        Args:
            now: the moment.
            tried: where this call has been, the latest last; another one is preferred.
            only: this one and no other.
        """
        with self._lock:
            if only is not None or len(self._replicas) == 1:
                replica = only or self._replicas[0]
                admitted = replica.circuit.state == "closed" or replica.circuit.admits(now)
                return replica.begin(now) if admitted else None
            choice = self._choice(now, tried)
            return self._better(choice, now).begin(now) if choice else None

    def other(self, now: float, tried: tuple[Replica, ...]) -> Attempt | None:
        """Begin a call at a healthy server that is not among those tried; None if there is none."""
        with self._lock:
            choice = self._others(now, tried)
            return self._better(choice, now).begin(now) if choice else None

    def has_other(self, now: float, tried: tuple[Replica, ...]) -> bool:
        """Whether `other` would find one."""
        if len(self._replicas) == 1 and self._replicas[0] in tried:
            return False
        with self._lock:
            return bool(self._others(now, tried))

    def end(self, attempt: Attempt, now: float, error: BaseException | None = None) -> None:
        """A call is over: answered (None), or ended with this error."""
        with self._lock:
            attempt.replica.end(attempt, now, error)

    def lost(self, attempt: Attempt, now: float) -> None:
        """A call was given up because another server was quicker."""
        with self._lock:
            attempt.replica.lost(attempt, now)

    def answered(self, attempt: Attempt, now: float) -> Attempt:
        """A stream has brought something and goes on."""
        with self._lock:
            return attempt.replica.answered(attempt, now)

    def kept(self, attempt: Attempt, now: float) -> Attempt:
        """A server is held, and what is told at the end will say nothing about it."""
        with self._lock:
            attempt.replica.circuit.leave(attempt.era, now, None, attempt.started)
        return attempt._replace(era=_NO_ERA)

    def released(self, attempt: Attempt, now: float, error: BaseException | None) -> None:
        """A server held for longer than a message is given back."""
        with self._lock:
            if attempt.era == _NO_ERA:
                attempt.replica.in_flight -= 1
            else:
                attempt.replica.released(attempt, now, error)

    def reopens_in(self, now: float, only: Replica | None = None) -> float:
        """Seconds until the first open circuit, or that of one server, lets a call through."""
        with self._lock:
            asked = self._replicas if only is None else [only]
            return min((replica.circuit.reopens_in(now) for replica in asked), default=0.0)

    def serve(self, targets: Iterable[Target]) -> None:
        """These and no others get calls from now on; what the others have under way goes on."""
        wanted = {target.address: target for target in targets}
        with self._membership:
            if self._closed:
                return
            kept = [replica for replica in self._replicas if replica.address in wanted]
            have = {replica.address for replica in kept}
            # Outside the lock of calls: making a transport may read certificates.
            new = [self._made(target) for name, target in wanted.items() if name not in have]
            with self._lock:
                self.retired += [each for each in self._replicas if each not in kept]
                self._replicas = kept + new

    def take_retired(self) -> list[Any]:
        """The transports of servers that were removed and have nothing under way, to be closed."""
        with self._lock:
            idle = [replica for replica in self.retired if not replica.in_flight]
            self.retired = [replica for replica in self.retired if replica.in_flight]
        return [replica.transport for replica in idle]

    def take_all(self) -> list[Any]:
        """Every transport, to be closed; a later call is refused by them."""
        with self._membership, self._lock:
            self._closed = True
            transports = [replica.transport for replica in self._replicas + self.retired]
            self.retired = []
        return transports

    def copies(self) -> list[Any]:
        """Every transport, in a fork: the locks may be held there by threads that it does not have."""
        return [replica.transport for replica in self._replicas + self.retired]

    def _made(self, target: Target) -> Replica:
        transport = self._connect(target.address, target.server_name)
        return Replica(target.address, transport, Circuit(self._breaker))

    def _choice(self, now: float, tried: tuple[Replica, ...]) -> list[Replica]:
        """Those to choose from: the best group that is not empty."""
        open_ = [replica for replica in self._replicas if replica.circuit.admits(now)]
        if not tried:
            return [replica for replica in open_ if replica.rested(now)] or open_
        last = tried[-1]
        return (
            [replica for replica in open_ if replica.rested(now) and replica not in tried]
            or [replica for replica in open_ if replica.rested(now) and replica is not last]
            or [replica for replica in open_ if replica not in tried]
            or [replica for replica in open_ if replica is not last]
            or open_
        )

    def _others(self, now: float, tried: tuple[Replica, ...]) -> list[Replica]:
        return [
            replica
            for replica in self._replicas
            if replica not in tried and replica.circuit.admits(now) and replica.rested(now)
        ]

    def _better(self, replicas: list[Replica], now: float) -> Replica:
        """Power of two choices (Mitzenmacher 2001) on calls in flight x latency."""
        count = len(replicas)
        if count == 1:
            return replicas[0]
        first = int(self._random() * count)
        second = int(self._random() * (count - 1))
        one, other = replicas[first], replicas[second + (second >= first)]
        return other if _busier(one, other, now) else one


def _busier(one: Replica, other: Replica, now: float) -> bool:
    """Whether `one` has clearly more to do than `other`."""
    mine, theirs = one.in_flight + 1.0, other.in_flight + 1.0
    if one.latency_s and other.latency_s:  # one that was never measured is compared by its calls
        least = min(one.latency_s, other.latency_s)
        mine *= one.aged_latency_s(now, least)
        theirs *= other.aged_latency_s(now, least)
    return mine > theirs * _ALIKE
