"""Speed of variants on this machine: for one item, and for the batch size that costs least per item."""

from __future__ import annotations

import contextlib
import statistics
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tritonkit.errors import TritonkitError
from tritonkit.repository.export.artifact import seal, unseal
from tritonkit.repository.export.samples import Batch, count_items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tritonkit.repository.export.artifact import Artifact
    from tritonkit.repository.optimize.job import Job
    from tritonkit.repository.optimize.runner import Runs

__all__ = ["Timed", "VariantTiming", "batch_of", "find_gpu_timing", "find_timing", "time_together"]

RECORD, GPU_RECORD = "timing.json", "timing-gpu.json"
_SIZES = (1, 2, 4, 8, 16, 32)
_GPU_SIZES = (*_SIZES, 64)
_WARM_RUNS = 2
ROUNDS = 3
_LEAST_RUNS, _MOST_RUNS = 2, 70
_SIZE_S = 0.15


@dataclass(frozen=True)
class VariantTiming:
    """Median times of a variant in process, by the runtime that serves it, on `threads` threads.

    Args:
        run: the measurement's name; only variants of the same run can be compared.
        gpu: the GPU that it was measured on; empty for the CPU.
    """

    threads: int
    batch1_ms: float
    best_batch: int
    best_batch_ms: float
    run: str
    gpu: str = ""

    @property
    def per_s(self) -> float:
        """Items per second at the best batch size."""
        return self.best_batch / self.best_batch_ms * 1000


@dataclass(frozen=True)
class Timed:
    """A variant to be measured.

    Args:
        job: the job that made it, which also has the input.
        folder: the folder of its files and its recorded figures.
        open_runner: a function that loads it.
        gpu: the GPU that it runs on; empty for the CPU.
    """

    job: Job
    folder: Path
    open_runner: Callable[[], Runs]
    gpu: str = ""


@runtime_checkable
class TimesItself(Protocol):
    """A network in another process, which measures its own runs: passing a batch there takes time too."""

    def times_ms(self, batch: Batch, **limits: float) -> list[float]:
        """Milliseconds of runs: `warm` uncounted ones, then `least` to `most` for about `seconds`."""
        ...


def find_timing(artifact: Artifact, threads: int, gpu: str = "") -> VariantTiming | None:
    """Earlier figures for the same number of threads and the same GPU, from a file next to the artifact's record."""
    timing = _read(artifact, _record(gpu))
    return timing if timing is not None and (timing.threads, timing.gpu) == (threads, gpu) else None


def find_gpu_timing(artifact: Artifact) -> VariantTiming | None:
    """The latest figures on a GPU, whatever GPU it was."""
    return _read(artifact, GPU_RECORD)


def _read(artifact: Artifact, record: str) -> VariantTiming | None:
    try:
        return VariantTiming(**unseal((artifact.folder / record).read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _record(gpu: str) -> str:
    return GPU_RECORD if gpu else RECORD


def time_together(
    variants: Mapping[str, Timed], say: Callable[[str], None]
) -> dict[str, VariantTiming | TritonkitError]:
    """Measure variants in turns, in several rounds, and record the figures in their folders where that can be written.

    The speed of a shared machine changes from minute to minute, so variants to be compared must be measured
    within the same minutes. Only one is loaded at a time, because all of them may not fit into memory.

    Returns:
        Each variant's medians over all rounds, or the reason that it does not run.
    """
    run = uuid.uuid4().hex
    times: dict[str, dict[int, list[float]]] = {name: {} for name in variants}
    failed: dict[str, TritonkitError] = {}
    for number in range(1, ROUNDS + 1):
        for name, timed in variants.items():
            if name in failed:
                continue
            say(f"measuring speed, round {number} of {ROUNDS}: {name}")
            try:
                _measure(timed, times[name])
            except TritonkitError as error:
                failed[name] = error
    timings = {n: _timing(variants[n], times[n], run) for n in variants if n not in failed}
    for name, timing in timings.items():
        # On a full disk the figures are measured again next time; `find_timing` ignores an incomplete record.
        with contextlib.suppress(OSError):
            (variants[name].folder / _record(timing.gpu)).write_text(seal(asdict(timing)))
    return {**timings, **failed}


def _measure(timed: Timed, times: dict[int, list[float]]) -> None:
    """Load a variant and add its times for each batch size, in milliseconds."""
    job = timed.job
    largest = job.spec.model.serving.max_batch_size
    together = job.batched and not job.one_by_one
    tried = _GPU_SIZES if timed.gpu else _SIZES
    sizes = [s for s in tried if s <= (largest or 8)] if together else [1]
    runner = timed.open_runner()
    for size in sizes:
        batch = batch_of(job.samples, size) if job.batched else job.samples[0]
        times.setdefault(size, []).extend(_times_ms(runner, batch))


def _timing(timed: Timed, times: Mapping[int, list[float]], run: str) -> VariantTiming:
    medians = {size: statistics.median(values) for size, values in times.items()}
    best = min(medians, key=lambda size: medians[size] / size)
    return VariantTiming(timed.job.threads, medians[1], best, medians[best], run, timed.gpu)


def batch_of(samples: list[Batch], size: int) -> Batch:
    """The first sample batch's items, repeated or cut to `size`."""
    import numpy as np

    first = samples[0]
    repeats = -(-size // count_items(first))
    return {name: np.concatenate([array] * repeats)[:size].copy() for name, array in first.items()}


def _times_ms(runner: Runs, batch: Batch) -> list[float]:
    if isinstance(runner, TimesItself):
        return runner.times_ms(batch, warm=_WARM_RUNS, least=_LEAST_RUNS, most=_MOST_RUNS, seconds=_SIZE_S)
    for _ in range(_WARM_RUNS):
        runner.run(batch)
    times: list[float] = []
    deadline = time.perf_counter() + _SIZE_S
    while len(times) < _LEAST_RUNS or (time.perf_counter() < deadline and len(times) < _MOST_RUNS):
        start = time.perf_counter()
        runner.run(batch)
        times.append((time.perf_counter() - start) * 1000)
    return times
