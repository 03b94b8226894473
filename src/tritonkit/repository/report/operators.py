"""Time of one variant's run by operator, from the profiler of the runtime that serves it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from tritonkit.errors import TritonkitError
from tritonkit.repository.export.cache import BuildCache
from tritonkit.repository.export.op_library import operators_of
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.optimize.results import Result
from tritonkit.repository.optimize.runtimes import RUNTIMES, OperatorTime
from tritonkit.repository.optimize.timing import batch_of
from tritonkit.text import first_line

__all__ = ["Operators", "profile_variant", "slowest"]

_PROFILE_MS = 400.0
_LEAST_REPEATS, _MOST_REPEATS = 5, 500


@dataclass(frozen=True)
class Operators:
    """Time of a run of one item by operator, slowest operator first.

    Without times there is a `problem`.
    """

    variant: str
    runtime: str
    threads: int
    plain_ms: float
    """Milliseconds of a run as the build timed it, without the profiler."""
    times: tuple[OperatorTime, ...] = ()
    problem: str = ""


def slowest(results: Iterable[Result]) -> Result | None:
    """The timed variant that takes longest for one item."""
    timed = [result for result in results if result.timing and result.artifact]
    return max(timed, key=lambda r: r.timing.batch1_ms if r.timing else 0.0, default=None)


def profile_variant(spec: Spec, cache: BuildCache, result: Result, threads: int) -> Operators:
    """Run the variant on the first held-out item under its runtime's profiler."""
    assert result.artifact is not None  # noqa: S101  the caller has looked
    assert result.timing is not None  # noqa: S101
    plain_ms = result.timing.batch1_ms
    runtime = result.runtime or ""
    repeats = int(_PROFILE_MS / max(plain_ms, 1e-3))
    try:
        # Output of a person's hooks must not mix with a command's own, such as --json.
        with contextlib.redirect_stdout(sys.stderr), operators_of(spec):
            job = job_of(spec, cache, threads=threads)
            batch = batch_of(job.samples, 1) if job.batched else job.samples[0]
            where = f"{spec.file} variant {result.variant}"
            runner = RUNTIMES[runtime](result.artifact.folder, threads, where)
            runner.run(batch)
            times = runner.profile(batch, min(max(repeats, _LEAST_REPEATS), _MOST_REPEATS))
    except Exception as error:  # An engine's error too: a profile is not worth the rest of the report.
        own = isinstance(error, TritonkitError)
        message = str(error) if own else f"{type(error).__name__}: {first_line(error)}"
        return Operators(result.variant, runtime, threads, plain_ms, problem=message)
    ordered = sorted(times, key=lambda time: time.ms, reverse=True)
    return Operators(result.variant, runtime, threads, plain_ms, tuple(ordered))
