"""The costs of a model's runs, as a few numbers that are fitted to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritonkit.perf.simulation.batcher import SimulatedBatcher

__all__ = ["Costs", "fit"]


@dataclass(frozen=True)
class Costs:
    """Costs of requests and runs, in seconds.

    Args:
        fixed_s, item_s: a run takes `fixed_s`, and `item_s` for each item of weight 1, while no other instance runs.
        around_s: time of a request outside the queue and the run: network, other steps.
        spread: the runs' coefficient of variation if there are no `factors`.
        weights: weights of the known requests, such as text lengths, with a mean of 1; empty if all are the same.
        shapes: a number for the shape of each of these requests; only requests of one shape share a batch.
        factors: measured ratios of runs to their mean, all equally likely, with a mean of 1.
        contention: the factor by which a run takes longer while all instances run.
        most_per_s: the highest rate of the whole machine, whatever the batches (0: not known).
    """

    fixed_s: float
    item_s: float
    around_s: float = 0.0
    spread: float = 0.1
    weights: tuple[float, ...] = ()
    shapes: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()
    contention: float = 1.0
    most_per_s: float = 0.0

    def run_s(self, items: float) -> float:
        """Duration of a run with this number of items, alone."""
        return self.fixed_s + self.item_s * items

    def speed(self, running: int, instances: int) -> float:
        """The speed of each of several concurrent runs relative to a single one; all of them reach 1 to `instances` /
        `contention` together."""
        if running <= 1 or instances <= 1:
            return 1.0
        together = 1 + (running - 1) * (instances / self.contention - 1) / (instances - 1)
        return together / running

    def capacity(self, batcher: SimulatedBatcher) -> float:
        """Requests a second with full batches: more than any rate that can be held."""
        items = max(1, batcher.max_batch_size)
        speed = self.speed(batcher.instances, batcher.instances)
        full_per_s = batcher.instances * speed * items / self.run_s(items)
        return min(full_per_s, self.most_per_s or full_per_s)

    def draw(
        self, count: int, rng: np.random.Generator, choice: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float64], list[int], NDArray[np.float64]]:
        """Random requests and runs: float64 [n] weights, their shapes (empty if all are the same), float64 [n] factors
        of runs. `choice`: int64 [n], which requests come."""
        chosen = rng.integers(max(1, len(self.weights)), size=count) if choice is None else choice
        weights = np.array(self.weights)[chosen] if self.weights else np.ones(count)
        shapes = np.array(self.shapes)[chosen].tolist() if self.shapes else []
        if self.factors:
            # Each equally often, in random order: this varies less than drawing each time.
            factors = rng.permutation(np.resize(self.factors, count))
        elif self.spread > 0:
            shape = 1 / self.spread**2
            factors = rng.gamma(shape, 1 / shape, count)
        else:
            factors = np.ones(count)
        return weights, shapes, factors


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """`fixed_s` and `item_s` of runs that were measured, neither below 0, by least squares of the relative error."""
    items, taken = np.asarray(sizes, np.float64), np.asarray(seconds, np.float64)
    if len(np.unique(items)) < 2:
        return 0.0, float((taken / items).mean())
    rows = np.stack([1 / taken, items / taken], axis=1)
    fixed, item = np.linalg.lstsq(rows, np.ones(len(items)), rcond=None)[0]
    if fixed < 0:
        return 0.0, float((items / taken).sum() / ((items / taken) ** 2).sum())
    if item <= 0:
        return float((1 / taken).sum() / (1 / taken**2).sum()), 1e-9
    return float(fixed), float(item)
