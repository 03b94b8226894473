"""How fast a variant is on this machine: one item alone, and the batch size that costs least per item."""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.export.artifact import seal, unseal
from tritonkit.export.samples import Batch, count_items

if TYPE_CHECKING:
    from tritonkit.export.artifact import Artifact
    from tritonkit.export.job import Job
    from tritonkit.export.runner import Runner

__all__ = ["VariantTiming", "batch_of", "find_timing", "time_runner"]

RECORD = "timing.json"
_SIZES = (1, 2, 4, 8, 16, 32)
_WARM_RUNS = 2
_LEAST_RUNS, _MOST_RUNS = 5, 200
_SIZE_S = 0.4


@dataclass(frozen=True)
class VariantTiming:
    """Median times of a variant in process, by the runtime that serves it, on `threads` threads."""

    threads: int
    batch1_ms: float
    best_batch: int
    best_batch_ms: float

    @property
    def per_s(self) -> float:
        """Items per second at the best batch size."""
        return self.best_batch / self.best_batch_ms * 1000


def find_timing(artifact: Artifact, threads: int) -> VariantTiming | None:
    """What was measured before on as many threads; it lies beside the artifact's record."""
    try:
        found = VariantTiming(**unseal((artifact.folder / RECORD).read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return found if found.threads == threads else None


def time_runner(job: Job, runner: Runner, folder: Path) -> VariantTiming:
    """Measure, and record the figures in `folder` where that can be written."""
    job.say("measuring speed")
    largest = job.spec.model.serving.max_batch_size
    sizes = [s for s in _SIZES if s <= (largest or 8)] if job.batched else [1]
    given = {s: batch_of(job.samples, s) if job.batched else job.samples[0] for s in sizes}
    times = {size: _median_ms(runner, batch) for size, batch in given.items()}
    best = min(times, key=lambda size: times[size] / size)
    timing = VariantTiming(job.threads, times[1], best, times[best])
    # On a full disk the figures are measured again next time; half a record is none to `find_timing`.
    with contextlib.suppress(OSError):
        (folder / RECORD).write_text(seal(asdict(timing)))
    return timing


def batch_of(samples: list[Batch], size: int) -> Batch:
    """The first sample batch's items, repeated or cut to `size`."""
    import numpy as np

    first = samples[0]
    repeats = -(-size // count_items(first))
    return {name: np.concatenate([array] * repeats)[:size].copy() for name, array in first.items()}


def _median_ms(runner: Runner, batch: Batch) -> float:
    for _ in range(_WARM_RUNS):
        runner.run(batch)
    times: list[float] = []
    deadline = time.perf_counter() + _SIZE_S
    while len(times) < _LEAST_RUNS or (time.perf_counter() < deadline and len(times) < _MOST_RUNS):
        start = time.perf_counter()
        runner.run(batch)
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)
