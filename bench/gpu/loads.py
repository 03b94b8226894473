"""Loads that saturate a GPU: NVIDIA's perf_analyzer where it runs, else processes of tritonkit's own callers.

perf_analyzer is compiled and reuses its requests: it sent 15,000 images/s with fewer than three cores, which leaves the
others to the server. Callers in Python need several processes for that, and their figures are lower where cores are
few; the tables name the generator. h2load sends one and the same request and no shared memory, so it is neither.
"""

from __future__ import annotations

import base64
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bench import perf_analyzer
from bench.gpu.callers import KEY
from bench.gpu.requests import items
from bench.programs import output
from tritonkit.client import Client
from tritonkit.errors import ClientError, TritonkitError

__all__ = ["Load", "Loads", "Utilization", "reason"]

_RATE = re.compile(r"Throughput: ([\d.]+) infer/sec")
_POINT = re.compile(r"p(\d+) latency: (\d+) usec")
_FAILED = re.compile(r"(?i)failed to|error:")
_WINDOWS = 3
_MOST_S = 30.0
"""A load takes a few seconds; one that hangs is given up after these."""
_ITEMS = {"resnet50": 8, "encoder": 256, "mlp": 64}
"""Different requests in perf_analyzer's file; an image is 200 KB there."""
_Figures = tuple[float, float, float, float]
"""Answers in a second, then p50, p95 and p99 in ms."""
_KEPT_CORES = 4
"""Cores that callers in Python leave to the server, where there are that many."""


@dataclass(frozen=True)
class Load:
    """The figures of one load.

    Args:
        way: "grpc", or where the tensors lie: "system" or "cuda" shared memory.
        callers: those of a closed loop; 0 for a rate.
        per_s: answers in a second.
        p50_ms, p95_ms, p99_ms: from sending to the answer.
        batch: the mean batch that the model ran.
        gpu: the mean utilization of the GPU, 0 to 1; None where nvidia-smi does not tell.
    """

    model: str
    way: str
    callers: int
    per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    batch: float
    gpu: float | None


@dataclass
class Loads:
    """A served repository under load.

    Args:
        address, key: those of the server.
        pixels, most: the sizes of the requests.
        seconds: the counted time of each load.
    """

    address: str
    key: str
    pixels: int
    most: int
    seconds: float

    @cached_property
    def generator(self) -> str:
        """The generator's name, or why it is not perf_analyzer."""
        try:
            perf_analyzer.binary()
        except TritonkitError as reason:
            return f"tritonkit's callers in {self._processes} processes (perf_analyzer: {reason.found})"
        return "perf_analyzer 2.44.0"

    def closed(self, model: str, callers: int, way: str = "grpc") -> dict[str, Any]:
        """Each of a number of callers sends its next request when the last is answered."""
        return self._load(model, way, callers, 0.0)

    def paced(self, model: str, per_s: float, way: str = "grpc") -> dict[str, Any]:
        """Requests at random moments of a rate."""
        return self._load(model, way, 0, per_s)

    def _load(self, model: str, way: str, callers: int, per_s: float) -> dict[str, Any]:
        analyzes = self.generator.startswith("perf_analyzer ")
        if way == "cuda" and not analyzes:
            raise ClientError("CUDA shared memory", found=f"perf_analyzer alone sends it; load: {self.generator}")
        with Client(self.address) as client, Utilization() as use:
            client.model(model)
            before = client.statistics(model)[0]
            figures = (self._analyzed if analyzes else self._called)(model, way, callers, per_s)
            after = client.statistics(model)[0]
        runs = after.execution_count - before.execution_count
        batch = (after.inference_count - before.inference_count) / runs if runs else float("nan")
        return asdict(Load(model, way, callers, *figures, batch=batch, gpu=use.mean()))

    def _analyzed(self, model: str, way: str, callers: int, per_s: float) -> _Figures:
        """One run of perf_analyzer of three windows, which all count."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "data.json"
            file.write_text(json.dumps({"data": self._data(model)}))
            words = self.words(model, way, callers, per_s, file)
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=_MOST_S, env=perf_analyzer.environment(), check=False
            )
        rate = _RATE.search(done.stdout)
        points = {int(point): int(us) / 1000 for point, us in _POINT.findall(done.stdout)}
        if done.returncode or rate is None or not {50, 95, 99} <= points.keys():
            raise ClientError(
                f"perf_analyzer on {model}", found=reason(done), details=(done.stdout + done.stderr)[-2000:]
            )
        return float(rate[1]), points[50], points[95], points[99]

    def words(self, model: str, way: str, callers: int, per_s: float, data: Path) -> list[str]:
        """The command line of perf_analyzer."""
        window_ms = round(1000 * self.seconds / _WINDOWS)
        options = ["-m", model, "-u", self.address, "-i", "grpc", "--async", "--input-data", str(data)]
        options += ["--measurement-interval", str(window_ms), "--max-trials", str(_WINDOWS)]
        options += ["--stability-percentage", "1000000"]
        if per_s:
            options += ["--request-rate-range", str(round(per_s)), "--request-distribution", "poisson"]
        else:
            options += ["--concurrency-range", f"{callers}:{callers}"]
        if way != "grpc":
            # Its help calls -H HTTP's; it sends them over gRPC, too, which tritonkit's server demands here.
            options += ["--shared-memory", way, "--output-shared-memory-size", "8192"]
            options += ["-H", f"triton-grpc-protocol-admin-key:{self.key}"]
        return [str(perf_analyzer.binary()), *options]

    def _data(self, model: str) -> list[dict[str, Any]]:
        kind = model.partition("_")[0]
        return [
            {
                name: {"b64": base64.b64encode(array.tobytes()).decode(), "shape": list(array.shape)}
                for name, array in row.items()
            }
            for row in items(kind, _ITEMS[kind], self.pixels, self.most)
        ]

    @property
    def _processes(self) -> int:
        return max(1, min(12, (os.cpu_count() or 1) - _KEPT_CORES))

    def _called(self, model: str, way: str, callers: int, per_s: float) -> _Figures:
        """Several processes of callers, each with its part."""
        count = min(self._processes, callers or self._processes)
        os.environ[KEY] = self.key

        def process(number: int) -> dict[str, Any]:
            part = callers // count + (number < callers % count)
            words = [self.address, model, f"--callers={part}", f"--per-s={per_s / count}", f"--seed={number + 1}"]
            words += [f"--seconds={self.seconds}", f"--pixels={self.pixels}", f"--most={self.most}"]
            words += ["--shared-memory"] if way == "system" else []
            return output(Path(sys.executable), "bench.gpu.callers", *words)

        with ThreadPoolExecutor(count) as pool:
            parts = list(pool.map(process, range(count)))
        taken = np.array([seconds for part in parts for seconds in part["seconds"]])
        if not taken.size:
            raise ClientError(f"callers of {model}", found="no answer came in the counted time")
        p50, p95, p99 = (float(1000 * np.percentile(taken, point)) for point in (50, 95, 99))
        return sum(part["per_s"] for part in parts), p50, p95, p99


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """The line in which perf_analyzer says what is wrong."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if _FAILED.search(line)]
    return lines[0] if lines else f"it ended with {done.returncode} and no figures"


class Utilization:
    """Samples of the GPU's utilization by nvidia-smi, while a block runs."""

    def __enter__(self) -> Utilization:
        """Start nvidia-smi, if there is one."""
        query = ["nvidia-smi", "--id=0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        self._process: subprocess.Popen[str] | None = None
        self._text = ""
        with suppress(FileNotFoundError):
            self._process = subprocess.Popen([*query, "--loop-ms=200"], stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and take what it printed."""
        if self._process is not None:
            self._process.terminate()
            self._text = self._process.communicate()[0]

    def mean(self) -> float | None:
        """The mean of the middle half of the samples: a load begins and ends within the others."""
        samples = [float(word) for word in self._text.split() if word.isdecimal()]
        middle = samples[len(samples) // 4 : len(samples) - len(samples) // 4]
        return statistics.fmean(middle) / 100 if middle else None
