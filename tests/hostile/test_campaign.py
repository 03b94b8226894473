"""A campaign of hostile requests: after it the server is alive, its memory as before, all answers typed.

`TRITONKIT_CAMPAIGN=10000` says how many requests each door gets; the seed is always the same, so that a
failure can be repeated.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import pytest

from tests.hostile.conftest import EVERY_KIND, Target
from tests.hostile.grpc_requests import Sender
from tests.hostile.test_closed import eventually, regions, resident
from tritonkit import Client

pytestmark = pytest.mark.timeout(900)

REQUESTS = int(os.environ.get("TRITONKIT_CAMPAIGN", "1500"))
WARM_UP = 500
CALLERS = 4

TYPED = {
    "OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "INTERNAL",
}  # fmt: skip
"""What Triton answers a client's mistakes with: INTERNAL too, for some."""


def storm(address: str, models: Sequence[str], requests: int, seed: int) -> Counter[str]:
    """Send so many from a few callers at a time; how often each status came."""

    def caller(number: int) -> Counter[str]:
        random = Random(seed * 1000 + number)
        sender = Sender(address, models)
        try:
            return Counter(sender.send(random) for _ in range(requests // CALLERS))
        finally:
            sender.close()

    with ThreadPoolExecutor(CALLERS) as pool:
        return sum(pool.map(caller, range(CALLERS)), Counter())


def test_grpc(target: Target) -> None:
    """Mutated requests over gRPC: every answer has a status of Triton's, none is missing, the process is the
    same, its memory has not grown by more than 5 % or 16 MiB, and models answer rightly."""
    pid, before = target.server.endpoint.pid, sorted(regions(target.server.endpoint.pid))
    # What the response cache takes is no leak: that model's turn comes when memory has been looked at.
    models = [name for name in EVERY_KIND if name != "cached"]
    storm(target.endpoint.grpc, models, WARM_UP, seed=0)
    resident_before = resident(pid)
    statuses = storm(target.endpoint.grpc, models, REQUESTS, seed=1)
    print(f"{sum(statuses.values())} requests over gRPC: {dict(statuses)}")  # noqa: T201
    grown = resident(pid) - resident_before
    statuses += storm(target.endpoint.grpc, ["cached"], REQUESTS // 10, seed=2)
    assert set(statuses) <= TYPED, statuses
    assert target.server.endpoint.pid == pid, "the server died"
    assert not target.of("server_died")
    assert not target.of("stub_died")
    assert grown <= max(0.05 * resident_before, 16 << 20)
    eventually(lambda: sorted(regions(pid)) == before)
    with Client(target.endpoint.grpc) as client:
        values = np.arange(5, dtype=np.float32)[None]
        np.testing.assert_array_equal(client.model("wide").predict(x=values)["y"], values)
        assert client.model("text").predict(x=[b"still here"])["y"][0, 0] == b"still here"
