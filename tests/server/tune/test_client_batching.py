"""The search for the best way of a client, with loads on a real Triton."""

from __future__ import annotations

import pytest

from tests.conftest import PROJECT
from tritonkit.perf.load.openloop import Generator, grouped, parse_slo
from tritonkit.perf.tune import best_client_batching
from tritonkit.serve import Endpoint


def test_the_best_way_of_a_client_is_found(digits_server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that a slow machine holds as well: from 50 items/s on it is beaten.

    The search stops at the first rate that misses, and has time for all of its runs.
    """
    monkeypatch.setattr(grouped, "_PRECISION", 1.0)
    lines: list[str] = []
    with Generator(PROJECT, ("digits",), (digits_server.grpc,)) as generator:
        alone = generator.requests
        best = best_client_batching(generator, parse_slo(["p50=1s"]), 50.0, 600.0, lines.append)
        assert generator.requests == alone
    assert best, lines
    assert best.rate_per_s > 50
    assert best.items in (4, 16)
    assert best.tail_ms <= 1000
    assert sum("holds" in line for line in lines) >= 3
