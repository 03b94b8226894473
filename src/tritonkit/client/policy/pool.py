"""The choice of a server for the next call: of two drawn at random, the less busy one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tritonkit.client.policy.breaker import CircuitBreaker
from tritonkit.client.policy.replica import Attempt, Replica
from tritonkit.client.policy.settings import Breaker

__all__ = ["Connect", "ReplicaPool"]

Connect = Callable[[str, str | None], Any]
"""`connect(address, server_name)`: a transport, its connection not yet opened; the name is for TLS."""

_ALIKE = 1.2  # chance decides between servers whose scores differ by less than this factor


class ReplicaPool:
    """The servers of one client; safe to share between threads, its lock is held for moments only."""

    def __init__(self, connect: Connect, breaker: Breaker | None, rng: Random) -> None:
        self._connect = connect
        self._breaker = breaker
        self._random = rng.random
        self.replicas: tuple[Replica, ...] = ()
        """Replicas that get calls now; a DNS name has none before its first look-up."""
        self.retired: list[Replica] = []
        """Removed replicas, to be closed once they have no calls under way."""
        self.closed = False
        self._lock = threading.Lock()
        self._membership = threading.Lock()

    def pick(self, now: float, tried: tuple[Replica, ...] = (), only: Replica | None = None) -> Attempt | None:
        """Begin a call; None when every circuit is open.

        Args:
            now: the moment.
            tried: the servers that this call has tried, the latest last; another one is preferred.
            only: the only allowed server.
        """
        with self._lock:
            if only is not None or len(self.replicas) == 1:
                replica = only or self.replicas[0]
                admitted = replica.breaker.state == "closed" or replica.breaker.admits(now)
                return replica.begin(now) if admitted else None
            return self._begin(self._others(now, tried) or self._rest(now, tried), now)

    def pick_other(self, now: float, tried: tuple[Replica, ...]) -> Attempt | None:
        """Begin a call at a healthy server that is not among those tried; None if there is none."""
        with self._lock:
            return self._begin(self._others(now, tried), now)

    def has_other(self, now: float, tried: tuple[Replica, ...]) -> bool:
        """Whether `pick_other` would find one."""
        with self._lock:
            return bool(self._others(now, tried))

    def reopens_in(self, now: float, only: Replica | None = None) -> float:
        """Seconds until the first open circuit, or that of one server, lets a call through."""
        with self._lock:
            replicas = self.replicas if only is None else (only,)
            return min((replica.breaker.reopens_in(now) for replica in replicas), default=0.0)

    def serve(self, addresses: Mapping[str, str | None]) -> None:
        """Send new calls only to these servers; calls under way at others continue. Values are names for TLS."""
        with self._membership:
            if self.closed:
                return
            stay = [replica for replica in self.replicas if replica.address in addresses]
            have = {replica.address for replica in stay}
            # Outside the lock of calls: making a transport may read certificates.
            new = [
                Replica(at, self._connect(at, name), CircuitBreaker(self._breaker), self._lock)
                for at, name in addresses.items()
                if at not in have
            ]
            with self._lock:
                self.retired += [replica for replica in self.replicas if replica not in stay]
                self.replicas = (*stay, *new)

    def take_retired(self) -> list[Any]:
        """The transports of servers that were removed and have nothing under way, to be closed."""
        with self._lock:
            idle = [replica for replica in self.retired if not replica.in_flight]
            self.retired = [replica for replica in self.retired if replica.in_flight]
        return [replica.transport for replica in idle]

    def take_all(self) -> list[Any]:
        """Every transport, to be closed; they refuse later calls."""
        with self._membership, self._lock:
            self.closed = True
            transports = self.transports()
            self.retired = []
        return transports

    def transports(self) -> list[Any]:
        """Every transport, read without the lock: in a forked child, a thread that no longer exists may hold it."""
        return [replica.transport for replica in (*self.replicas, *self.retired)]

    def _others(self, now: float, tried: tuple[Replica, ...]) -> list[Replica]:
        """Replicas that do not rest, were not tried and whose breakers admit a call."""
        return [
            replica
            for replica in self.replicas
            if now >= replica.rest_until and replica not in tried and replica.breaker.admits(now)
        ]

    def _rest(self, now: float, tried: tuple[Replica, ...]) -> list[Replica]:
        """The best group that is not empty, if there are no `_others`."""
        admitted = [replica for replica in self.replicas if replica.breaker.admits(now)]
        last = tried[-1] if tried else None
        return (
            [replica for replica in admitted if replica is not last and now >= replica.rest_until]
            or [replica for replica in admitted if replica not in tried]
            or [replica for replica in admitted if replica is not last]
            or admitted
        )

    def _begin(self, replicas: list[Replica], now: float) -> Attempt | None:
        """The power of two choices (Mitzenmacher 2001), on calls in flight x latency."""
        count = len(replicas)
        if count < 2:
            return replicas[0].begin(now) if replicas else None
        first = int(self._random() * count)
        second = int(self._random() * (count - 1))
        one, other = replicas[first], replicas[second + (second >= first)]
        return (other if _busier(one, other, now) else one).begin(now)


def _busier(one: Replica, other: Replica, now: float) -> bool:
    """Whether `one` has clearly more to do than `other`."""
    mine, theirs = one.in_flight + 1.0, other.in_flight + 1.0
    if one.latency_s and other.latency_s:  # a server without a measurement is compared by its calls
        least = min(one.latency_s, other.latency_s)
        mine *= one.aged_latency_s(now, least)
        theirs *= other.aged_latency_s(now, least)
    return mine > theirs * _ALIKE
