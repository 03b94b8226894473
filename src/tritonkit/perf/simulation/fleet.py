"""Replicas behind a balancer as a discrete-event simulation, each with Triton's batcher; replicas may go down.

With random or round-robin balancing, replicas are independent: each is simulated by itself, with its part of the
requests. If the balancer compares loads, or a replica goes down, all requests go through one loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tritonkit.perf.simulation.batcher import SimulatedBatcher
from tritonkit.perf.simulation.costs import Costs
from tritonkit.perf.simulation.replica import NEVER, Requests, Simulated, SimulatedReplica, simulate

__all__ = ["BALANCING", "Balancing", "Outage", "simulate_fleet"]

Balancing: TypeAlias = Literal["random", "round_robin", "least_request"]
BALANCING: tuple[str, ...] = get_args(Balancing)
"""`least_request` works as in Envoy: it takes the one of two random replicas with fewer requests in flight."""


@dataclass(frozen=True)
class Outage:
    """A replica that is down from one second to another: its requests are sent again immediately, to others."""

    replica: int
    from_s: float
    until_s: float


def simulate_fleet(
    moments: Sequence[float] | NDArray[np.float64],
    batcher: SimulatedBatcher,
    costs: Costs,
    replicas: int,
    balancing: Balancing = "least_request",
    *,
    outages: Sequence[Outage] = (),
    seed: int = 0,
    choice: NDArray[np.int64] | None = None,
) -> Simulated:
    """Serve these arrivals with several replicas.

    Args:
        moments: seconds, ascending.
        outages: replicas that go down. seed: the seed of the balancer, the runs' factors
            and the choice of requests.
        choice: int64 [n]: the index in `costs.weights` of each request, instead of a random one.
    """
    arrivals = np.asarray(moments, np.float64)
    rng = np.random.default_rng(seed)
    if replicas == 1 and not outages:
        return simulate(arrivals, batcher, costs, seed=seed, choice=choice)
    if balancing == "least_request" or outages:
        requests = Requests.drawn(costs, len(arrivals), rng, choice)
        return _together(arrivals, batcher, requests, replicas, balancing, outages, rng)
    if balancing == "random":
        chosen = rng.integers(replicas, size=len(arrivals))
    else:
        chosen = np.arange(len(arrivals)) % replicas
    latency_s = np.empty(len(arrivals))
    runs = busy = 0.0
    for replica in range(replicas):
        own = chosen == replica
        its = None if choice is None else choice[own]
        simulated = simulate(arrivals[own], batcher, costs, seed=seed + replica, choice=its)
        latency_s[own] = simulated.latency_s
        runs += own.sum() / simulated.batch if own.any() else 0.0
        busy += simulated.busy / replicas
    return Simulated(latency_s, len(arrivals) / max(runs, 1.0), busy)


def _together(
    arrivals: NDArray[np.float64],
    batcher: SimulatedBatcher,
    requests: Requests,
    replicas: int,
    balancing: Balancing,
    outages: Sequence[Outage],
    rng: np.random.Generator,
) -> Simulated:
    """All requests in order, each to the replica that the balancer chooses at its moment."""
    fleet = [SimulatedReplica(batcher, requests) for _ in range(replicas)]
    balancer = _Balancer(fleet, balancing, len(arrivals), rng)
    falls = sorted(outages, key=lambda outage: outage.from_s, reverse=True)
    for request, now in enumerate(arrivals.tolist()):
        while falls and falls[-1].from_s <= now:
            fall = falls.pop()
            balancer.may_be_down = True
            for again in fleet[fall.replica].take_down(fall.from_s, fall.until_s):
                balancer.choose(again, fall.from_s).send(again, fall.from_s)
        balancer.choose(request, now).send(request, now)
    for replica in fleet:
        replica.advance(NEVER)
    return requests.simulated(arrivals, batcher.instances * replicas, requests.costs.around_s)


class _Balancer:
    """Chooses a replica for each request."""

    def __init__(
        self, fleet: Sequence[SimulatedReplica], balancing: Balancing, count: int, rng: np.random.Generator
    ) -> None:
        self._fleet, self._balancing = fleet, balancing
        self._chance: list[tuple[float, float]] = rng.random((count, 2)).tolist()
        self._turn = 0
        self.may_be_down = False

    def choose(self, request: int, now: float) -> SimulatedReplica:
        """Choose among replicas that are up; if there is none, the next one to come back."""
        up = self._fleet
        if self.may_be_down:
            up = [replica for replica in up if replica.down_until <= now]
            up = up or [min(self._fleet, key=lambda replica: replica.down_until)]
        if self._balancing == "round_robin":
            self._turn += 1
            return up[self._turn % len(up)]
        one, other = self._chance[request]
        first = int(one * len(up))
        if self._balancing == "random" or len(up) == 1:
            return up[first]
        second = (first + 1 + int(other * (len(up) - 1))) % len(up)
        up[first].advance(now)
        up[second].advance(now)
        return up[second if up[second].under_way < up[first].under_way else first]
