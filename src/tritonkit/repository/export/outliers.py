"""The cost of an outlier to the items next to it in a batch, for networks whose numbers are rounded.

Pure functions: they are given samples, a function that runs batches, and a function that scores outputs. One item of
large values widens a range that is found for the whole batch, as in dynamic INT8. All other items are then rounded more
coarsely. First a few items run next to an ordinary neighbor and next to an outlier. Their batches have one size, so
they use the same kernels. If no answer changes, each row has its own range. Otherwise all samples run next to each kind
of outlier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tritonkit.repository.export.neighbors import LARGE, ZEROS, join, neighbor
from tritonkit.repository.export.samples import Batch, count_items
from tritonkit.repository.export.scores import Score
from tritonkit.repository.modelspec.quality import Tolerance

__all__ = ["NeighborScore", "batch_gain", "moves", "score_next_to"]

OTHER = "another item"
_KINDS = {LARGE: f"an item {LARGE}", ZEROS: "an item of zeros", OTHER: "another item"}
"""Kind of neighbor -> its description in a sentence."""
_FEW = 4
"""Number of items that run first, to see whether any answer changes."""
_BATCH = 8
_SECONDS = 0.3


@dataclass(frozen=True)
class NeighborScore:
    """The score of all samples, with one more item of a given kind next to each batch."""

    kind: str
    score: Score

    @property
    def neighbor(self) -> str:
        """The neighbor's description."""
        return _KINDS[self.kind]


def moves(run: Callable[[Batch], Batch], samples: Sequence[Batch], tolerance: Tolerance) -> tuple[str, ...]:
    """The kinds of neighbors that change the answers to other items; empty if rows are independent."""
    moving = []
    for kind in _KINDS:
        for batch, other in _pairs(samples, kind):
            items = {name: array[:_FEW] for name, array in batch.items()}
            count = count_items(items)
            before = run(join([items, _last(items)]))
            after = run(join([items, other]))
            if any(not _still(before[n][:count], after[n][:count], tolerance) for n in before):
                moving.append(kind)
                break
    return tuple(moving)


def score_next_to(
    run: Callable[[Batch], Batch], samples: Sequence[Batch], kinds: Sequence[str], score: Callable[[list[Batch]], Score]
) -> NeighborScore:
    """The lowest score next to any of these kinds of neighbors; `score` takes the outputs of all samples."""
    scores = []
    for kind in kinds:
        outputs: list[Batch] = []
        for batch in samples:
            other = _neighbor(batch, samples, kind)
            count = count_items(batch)
            given = batch if other is None else join([batch, other])
            outputs.append({name: array[:count] for name, array in run(given).items()})
        scores.append(NeighborScore(kind, score(outputs)))
    return min(scores, key=lambda neighbor: neighbor.score.rank)


def batch_gain(run: Callable[[Batch], Batch], item: Batch) -> float:
    """Throughput of batches of 8 divided by that of one item at a time."""
    one, several = _seconds(run, item), _seconds(run, join([item] * _BATCH))
    return _BATCH * one / several


def _seconds(run: Callable[[Batch], Batch], batch: Batch) -> float:
    """Seconds of the shortest of several runs, which take a fraction of a second together."""
    run(batch)
    best, ends = float("inf"), time.monotonic() + _SECONDS / 2
    while best == float("inf") or time.monotonic() < ends:
        start = time.monotonic()
        run(batch)
        best = min(best, time.monotonic() - start)
    return max(best, 1e-9)


def _pairs(samples: Sequence[Batch], kind: str) -> Iterator[tuple[Batch, Batch]]:
    """A batch of each layout with a neighbor for it."""
    seen = set()
    for batch in samples:
        layout = _layout(batch)
        other = None if layout in seen else _neighbor(batch, samples, kind)
        if other is not None:
            seen.add(layout)
            yield batch, other


def _neighbor(batch: Batch, samples: Sequence[Batch], kind: str) -> Batch | None:
    """One item of a kind that fits the batch; None if none does."""
    if kind != OTHER:
        return neighbor(_last(batch), kind)
    fitting = [b for b in samples if _layout(b) == _layout(batch) and b is not batch]
    return _last(fitting[0]) if fitting else None


def _last(batch: Batch) -> Batch:
    return {name: array[-1:] for name, array in batch.items()}


def _layout(batch: Batch) -> tuple[tuple[int, ...], ...]:
    return tuple(array.shape[1:] for array in batch.values())


def _still(before: object, after: object, tolerance: Tolerance) -> bool:
    import numpy as np

    before, after = np.asarray(before), np.asarray(after)
    if before.shape != after.shape:
        return False
    if not np.issubdtype(before.dtype, np.number):
        return bool(np.array_equal(before, after))
    bounds = {"atol": tolerance.absolute, "rtol": tolerance.relative}
    return bool(np.allclose(before, after, equal_nan=True, **bounds))
