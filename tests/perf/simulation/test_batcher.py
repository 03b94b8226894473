"""Batches of requests of different shapes: what stands behind a stranger waits for its turn."""

from __future__ import annotations

import numpy as np
import pytest

from tritonkit.perf.simulation import Costs, SimulatedBatcher, simulate
from tritonkit.perf.simulation.batcher import next_batch


@pytest.mark.parametrize(
    ("shapes", "batcher", "expected"),
    [
        ([], SimulatedBatcher(1, 8), (1.0, 4)),
        ([0, 0, 1, 0], SimulatedBatcher(1, 8), (1.0, 2)),
        ([0, 1, 0, 0], SimulatedBatcher(1, 8, delay_s=9.0), (1.0, 1)),
        ([0, 0, 0, 1], SimulatedBatcher(1, 8, delay_s=9.0), (1.0, 3)),
        ([0, 0, 0, 0], SimulatedBatcher(1, 4, delay_s=9.0), (1.0, 4)),
        ([0, 0, 0, 0], SimulatedBatcher(1, 8, (3,), 9.0), (1.0, 3)),
        ([0, 0, 0, 0], SimulatedBatcher(1, 8, (), 2.0), (2.1, 4)),
    ],
)
def test_the_next_batch(shapes: list[int], batcher: SimulatedBatcher, expected: tuple[float, int]) -> None:
    """Four requests wait when an instance is free: when the first leave, and how many."""
    at = [0.1, 0.2, 0.3, 0.4]
    assert next_batch(at, shapes, 0, 1.0, batcher) == pytest.approx(expected)


def test_a_stranger_that_comes_ends_the_wait_for_others() -> None:
    """Triton does not look behind it, so waiting any longer would be for nothing."""
    at = [0.0, 0.001, 0.002]
    batcher = SimulatedBatcher(1, 8, delay_s=0.1)
    assert next_batch(at, [0, 0, 1], 0, 0.0, batcher) == (0.002, 2)


def test_shapes_keep_batches_small() -> None:
    """The same load with two shapes by chance has batches of about two."""
    moments = np.arange(4000) * 0.001
    alike = simulate(moments, SimulatedBatcher(1, 16), Costs(0.008, 0.0, weights=(1.0, 1.0)))
    mixed = simulate(moments, SimulatedBatcher(1, 16), Costs(0.008, 0.0, weights=(1.0, 1.0), shapes=(0, 1)))
    assert alike.batch > 7
    assert mixed.batch == pytest.approx(2, rel=0.1)
