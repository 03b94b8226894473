"""One variant in process: `python -m bench.engine MODEL VARIANT --batches 1,4,8`, JSON out.

It uses the runtime that serves the variant, this machine's cores and the model's own samples.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from tritonkit.errors import UsageError
from tritonkit.machine import cores
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize import plan
from tritonkit.repository.optimize.make import job_of
from tritonkit.repository.optimize.runtimes import RUNTIMES
from tritonkit.repository.optimize.timing import batch_of
from tritonkit.repository.optimize.variants import parse

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Print the median milliseconds of each batch size."""
    options = _parser().parse_args()
    spec = load(ROOT / "models" / options.model, ROOT)
    cache = BuildCache(ROOT / ".tritonkit" / "cache")
    artifact = plan(spec, cache, variant=options.variant).cached
    runtime = parse(options.variant, "bench").runtime
    if artifact is None or runtime is None:
        raise UsageError(
            f"{options.model} {options.variant}",
            found="it is not built, or does not run here",
            todo=f"tritonkit build {options.model} --variants {options.variant}",
        )
    runner = RUNTIMES[runtime](artifact.folder, cores(), "bench")
    samples = job_of(spec, cache).samples
    times = {}
    for size in options.batches:
        batch = batch_of(samples, size)
        for _ in range(3):
            runner.run(batch)
        taken: list[float] = []
        end = time.perf_counter() + options.seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            runner.run(batch)
            taken.append((time.perf_counter() - start) * 1000)
        times[size] = statistics.median(taken)
    print(json.dumps({"ms": times}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("variant")
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[1])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each batch size")
    return parser


if __name__ == "__main__":
    main()
