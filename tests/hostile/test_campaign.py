"""A campaign of hostile requests: after it the server is alive, its memory as before, all answers typed.

`TRITONKIT_CAMPAIGN=10000` says how many requests each proxy gets; the seed is always the same, so that a
failure can be repeated. `test_gateway.py` sends the same through the gateway; docs/tests.md has the command for all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Protocol

import numpy as np
import pytest

from tests.hostile import grpc_requests, http_requests
from tests.hostile.conftest import EVERY_KIND, Target
from tests.hostile.test_closed import eventually, regions, resident
from tritonkit import Client
from tritonkit.serve.core.supervisor import children

pytestmark = pytest.mark.timeout(900)

REQUESTS = int(os.environ.get("TRITONKIT_CAMPAIGN", "1500"))
LONG = REQUESTS >= 10_000
FEW = 500
WARM_UP = REQUESTS if LONG else FEW
CALLERS = 4

MAY_GROW = (8 << 20) + REQUESTS * 2048
"""Triton 2.51 keeps about 0.5 KiB of each request that it refuses (64,000 of them: 40 MiB), by jumps of
its allocator; of those that it answers it keeps nothing."""
MAY_GROW_SHARE = 0.05
"""Share of all processes' memory after a warm-up as long as the campaign, when most allocator jumps are over."""


class Caller(Protocol):
    """Sends one mutated request and says how it was answered."""

    def send(self, random: Random) -> str:
        """The status, by name or number."""


def storm(callers: Sequence[Caller], requests: int, seed: int) -> Counter[str]:
    """Send this many requests from concurrent callers; the count of each status."""

    def run(number: int) -> Counter[str]:
        random = Random(seed * 1000 + number)
        return Counter(callers[number].send(random) for _ in range(requests // len(callers)))

    with ThreadPoolExecutor(len(callers)) as pool:
        return sum(pool.map(run, range(len(callers))), Counter())


class Memory:
    """Memory and files of processes and their children, compared before and after.

    Args:
        pids: by name.
        slack: bytes that each process may gain in a short campaign, in addition to MAY_GROW.
    """

    def __init__(self, slack: int = 0, **pids: int) -> None:
        self._pids, self._slack = pids, slack
        self._before = self._now()

    def has_hardly_grown(self) -> None:
        """None of the processes has in a short campaign; all together, with their children, in a long one."""
        now = self._now()
        for name, (own, _) in self._before.items():
            more = now[name][0] - own
            print(f"{name}: {own >> 20} MiB, {more / own:+.1%}")  # noqa: T201
            assert LONG or more <= MAY_GROW + self._slack, name
        before, after = (sum(map(sum, counts.values())) for counts in (self._before, now))
        print(f"with their children: {before >> 20} MiB, {after / before - 1:+.1%}")  # noqa: T201
        assert not LONG or after <= (1 + MAY_GROW_SHARE) * before

    def _now(self) -> dict[str, tuple[int, int]]:
        """Bytes of each, and of its children."""
        return {
            name: (resident(pid), sum(resident(child) for child in children(pid))) for name, pid in self._pids.items()
        }


def unharmed(target: Target, pid: int) -> None:
    """The server and its stubs are those they were, and models answer rightly."""
    assert target.server.endpoint.pid == pid, "the server died"
    assert not [e for e in target.events if e.kind in ("server_died", "stub_died", "proxy_died")]
    with Client(target.endpoint.grpc) as client:
        values = np.arange(5, dtype=np.float32)[None]
        np.testing.assert_array_equal(client.model("wide").predict(x=values)["y"], values)
        assert client.model("text").predict(x=[b"still here"])["y"][0, 0] == b"still here"


def test_grpc(target: Target) -> None:
    """Mutated requests over gRPC: every answer has a status of Triton's, none is missing, the process is the
    same, its memory has hardly grown, and models answer rightly."""
    pid, before = target.endpoint.pid, sorted(regions(target.endpoint.pid))
    # What the response cache takes is no leak: that model's turn comes when memory has been looked at.
    models = [name for name in EVERY_KIND if name != "cached"]
    callers = [grpc_requests.Sender(target.endpoint.grpc, models) for _ in range(CALLERS)]
    storm(callers, WARM_UP, seed=0)
    memory = Memory(server=pid)
    statuses = storm(callers, REQUESTS, seed=1)
    memory.has_hardly_grown()
    callers.append(grpc_requests.Sender(target.endpoint.grpc, ["cached"]))
    statuses += storm(callers[-1:], FEW, seed=2)
    for caller in callers:
        caller.close()
    print(f"{sum(statuses.values())} requests over gRPC: {dict(statuses)}")  # noqa: T201
    assert set(statuses) <= grpc_requests.STATUSES, statuses
    eventually(lambda: sorted(regions(pid)) == before)
    unharmed(target, pid)


def test_http(rest_target: Target) -> None:
    """Mutated requests over HTTP: every answer has a status of the proxy's, none is missing, and the server
    is as it was."""
    pid, before = rest_target.endpoint.pid, sorted(regions(rest_target.endpoint.pid))
    callers = [http_requests.Sender(rest_target.endpoint.http) for _ in range(CALLERS)]
    storm(callers, WARM_UP, seed=3)
    memory = Memory(server=pid)
    statuses = storm(callers, REQUESTS, seed=4)
    for caller in callers:
        caller.close()
    print(f"{sum(statuses.values())} requests over HTTP: {dict(statuses)}")  # noqa: T201
    assert set(statuses) <= http_requests.TYPED, statuses
    memory.has_hardly_grown()
    eventually(lambda: sorted(regions(pid)) == before)
    unharmed(rest_target, pid)
