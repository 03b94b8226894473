"""Requests of several items under load on a real Triton: all answered right, of the sizes that they should have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import PROJECT
from tests.waiting import PATIENCE_S, eventually, standstill
from tritonkit.client import Client
from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop import Generator, parse_slo
from tritonkit.perf.load.openloop.grouped import group, grouped_trial
from tritonkit.serve import Endpoint

ANYTHING = parse_slo([f"p50={PATIENCE_S:g}s"])
WORKLOADS = """
from pathlib import Path
from tritonkit.perf.load.workload import Request, Workload, expect_label
from tritonkit.perf.load.workloads import digits

def one_wrong(root, client):
    requests = list(digits(Path({project!r}), client).requests)
    requests[5] = Request(requests[5].inputs, expect_label("eleven"))
    return Workload("digits", tuple(requests))

WORKLOADS = {{"digits": one_wrong}}
"""


@pytest.fixture
def generator(digits_server: Endpoint) -> Iterator[Generator]:
    """For digits on the session's server."""
    with Generator(PROJECT, ("digits",), (digits_server.grpc,), timeout_s=PATIENCE_S) as made:
        yield made


@contextmanager
def counting(address: str, requests: int, items: int) -> Iterator[None]:
    """The first step of digits has this number of requests and of items during the block.

    Triton counts a request after it has answered it, so those from before the block are waited for.
    """
    with Client(address, timeout_s=PATIENCE_S) as client:

        def counts() -> tuple[int, int]:
            stats = client.statistics("digits_decode_image")
            return sum(s.success_count for s in stats), sum(s.inference_count for s in stats)

        before = standstill(counts)
        yield
        expected = (before[0] + requests, before[1] + items)
        eventually(lambda: counts() >= expected, "all of them counted")
        assert standstill(counts) == expected


def test_joined_requests_are_answered_right_item_by_item(generator: Generator, digits_server: Endpoint) -> None:
    """Each of the workload's requests is sent once, eight at a time; the server counts the same items."""
    alone = generator.requests
    generator.prepare(8)
    assert generator.items.tolist() == [8] * -(-alone // 8)
    assert set(generator.layouts.tolist()) == {0}
    with counting(digits_server.grpc, generator.requests, 8 * generator.requests):
        record = generator.send(np.arange(generator.requests) / 50, np.arange(generator.requests))
    assert not record.outcome.any(), record.failures


def test_groups_arrive_with_the_sizes_that_they_have(generator: Generator, digits_server: Endpoint) -> None:
    """Groups of up to four items, full and not, are answered correctly."""
    generator.prepare(range(1, 5))
    arrivals = np.concatenate([[0.0, 0.001, 0.002, 0.003], 0.5 + np.arange(6) / 1000, [1.0]])
    groups = group(arrivals, 4, 0.01)
    assert groups.sizes.tolist() == [4, 4, 2, 1]
    choice = np.array([np.flatnonzero(generator.items == size)[0] for size in groups.sizes])
    with counting(digits_server.grpc, 4, 11):
        record = generator.send(groups.closes, choice)
    assert not record.outcome.any(), record.failures


def test_items_count_from_their_own_arrival(generator: Generator) -> None:
    """All are answered right; who begins a group that never fills waits for the whole delay."""
    generator.prepare(range(1, 17))
    run = grouped_trial(generator, 100.0, 2.0, 16, 0.05, ANYTHING, seed=1)
    assert run.trial.holds, run.trial.missed
    assert run.trial.error_rate == 0
    assert run.latency
    assert run.latency.count > 100
    assert run.latency.largest > 50
    assert 2 < run.company <= 16


def test_one_wrong_item_fails_its_request_and_no_other(digits_server: Endpoint, tmp_path: Path) -> None:
    """The sixth item of all is in the second request of four."""
    (tmp_path / "loadtest").mkdir()
    (tmp_path / "loadtest" / "workloads.py").write_text(WORKLOADS.format(project=str(PROJECT)))
    with Generator(tmp_path, ("digits",), (digits_server.grpc,), timeout_s=PATIENCE_S) as generator:
        generator.prepare(4)
        record = generator.send(np.arange(generator.requests) / 50, np.arange(generator.requests))
    assert np.flatnonzero(record.outcome).tolist() == [1]
    assert record.failures[0].endswith("expected eleven")


def test_what_cannot_be_prepared_leaves_the_requests_as_they_were(generator: Generator) -> None:
    """More items than the model takes, none, and groups of a size that there is not."""
    before = generator.requests
    with pytest.raises(UsageError, match="its max_batch_size is 64"):
        generator.prepare(65)
    for nonsense in (0, ()):
        with pytest.raises(UsageError, match="1 or more"):
            generator.prepare(nonsense)
    with pytest.raises(UsageError, match="no request of 2 items"):
        grouped_trial(generator, 100.0, 1.0, 4, 0.001, ANYTHING)
    assert generator.requests == before
    record = generator.send(np.zeros(3), np.arange(3))
    assert not record.outcome.any(), record.failures


def test_groups_are_of_one_model(digits_server: Endpoint) -> None:
    """Said before anything is sent."""
    with (
        Generator(PROJECT, ("digits", "sentences"), (digits_server.grpc,)) as generator,
        pytest.raises(UsageError, match="2 models"),
    ):
        grouped_trial(generator, 100.0, 1.0, 1, 0.001, ANYTHING)
