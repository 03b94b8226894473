"""Functions of AWS Lambda: the start and a call of the INT8 file over those of the FP32 file."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.report import Ratio, Report
from bench.runtime_api import Function, function
from bench.setting import chosen
from tritonkit.errors import ServerStartError
from tritonkit.machine import tree_processor_s

if TYPE_CHECKING:
    from bench.setting import Setting

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("digits", "sentences")
FP32, INT8 = "fp32", "int8"
CALLS = 100
BASE = os.environ.get("TRITONKIT_BASE", "tritonkit/base:local")
_STARTS = {
    "start: process to first event": "start_ms",
    "of it: libraries, files checked meanwhile": "libraries_ms",
    "of it: the models' Python": "models_python_ms",
    "of it: the models": "models_ms",
    "first answer": "first_ms",
    "start and first answer": "cold_ms",
    "a warm call": "warm_ms",
    "processor time of start and first answer": "cold_processor_ms",
    "processor time of a warm call": "warm_processor_ms",
}
"""Compared figure -> its key; processor times depend less on the machine's other work."""


def run(setting: Setting) -> Report:
    """Starts and calls of functions of AWS Lambda, INT8 over FP32, through the runtime client, in turns."""
    from tritonkit.operate.deploy.serverless import bundle, write_bundle

    ratios: list[Ratio] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        for model in chosen("--models", setting.models, MODELS):
            folders = {}
            for variant in (FP32, INT8):
                folders[variant] = Path(place) / f"{model}-{variant}"
                made = bundle(ROOT, model, variant)
                write_bundle(folders[variant], made)
                notes.append(f"{model} {variant}: {made.variant}")
            for folder in folders.values():  # the first read from disk counts for neither
                _measured(folder)
            rounds = [_round(folders, turn) for turn in range(setting.rounds)]
            ratios += _ratios(model, rounds)
            ratios += _sizes(model, folders, notes)
    return Report(
        "lambda",
        "functions of AWS Lambda with the INT8 file over those with the FP32 file, through the Runtime API and its"
        " client on this machine, with one thread; ms and MiB, of this run",
        ratios,
        notes=notes,
    )


def _round(folders: Mapping[str, Path], turn: int) -> dict[str, dict[str, float]]:
    """Start each function once; the first one changes from round to round."""
    order = sorted(folders, reverse=turn % 2 == 1)
    return {variant: _measured(folders[variant]) for variant in order}


def _measured(folder: Path) -> dict[str, float]:
    """A start, the first answer and the median of warm calls, in milliseconds."""
    event = json.loads((folder / "example.json").read_text())
    with function(folder / "function") as running:
        first = _call(running, event)
        used = tree_processor_s(running.process.pid)
        warm = statistics.median(_call(running, event) for _ in range(CALLS))
        later = tree_processor_s(running.process.pid)
        times = json.loads(running.stop().splitlines()[0])["ms"]
        start = running.start_s * 1000
    return {
        "start_ms": start,
        "libraries_ms": times["libraries"] + times["files_after_libraries"],
        "models_python_ms": times["models_python"],
        "models_ms": times["models"],
        "files_ms": times["files"],
        "first_ms": first,
        "cold_ms": start + first,
        "warm_ms": warm,
        "cold_processor_ms": used * 1000,
        "warm_processor_ms": (later - used) * 1000 / CALLS,
    }


def _call(running: Function, event: Any) -> float:
    began = time.perf_counter()
    outcome = running.invoke(event)
    took = (time.perf_counter() - began) * 1000
    if outcome.failed or "error" in outcome.body:
        raise ServerStartError("the function", found="no answer", details=str(outcome.body))
    return took


def _ratios(model: str, rounds: Sequence[Mapping[str, Mapping[str, float]]]) -> list[Ratio]:
    return [
        Ratio(
            f"{model}, {name}",
            [times[INT8][key] / times[FP32][key] for times in rounds],
            facts={variant: _spread([times[variant][key] for times in rounds]) for variant in (FP32, INT8)},
        )
        for name, key in _STARTS.items()
    ]


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ms ({min(values):.1f} to {max(values):.1f})"


def _sizes(model: str, folders: Mapping[str, Path], notes: list[str]) -> list[Ratio]:
    """Bytes of the function's files, and of its image if docker can make one on the local base."""
    files = {variant: _bytes(folder / "function") for variant, folder in folders.items()}
    made = [_size(f"{model}, bytes of the function's files", files)]
    images = {variant: _image(folder) for variant, folder in folders.items()}
    if not all(images.values()):
        notes.append(f"{model}: no image: docker or its base {BASE} is absent (TRITONKIT_BASE names another)")
        return made
    return [*made, _size(f"{model}, bytes of the image", images)]


def _size(name: str, sizes: Mapping[str, int]) -> Ratio:
    facts = {variant: f"{size / 2**20:.1f} MiB" for variant, size in sizes.items()}
    return Ratio(name, [sizes[INT8] / sizes[FP32]], facts=facts)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _image(folder: Path) -> int:
    """The size of an image, which is removed afterwards; 0 if none can be made."""
    docker, tag = shutil.which("docker"), f"tritonkit/bench-lambda:{folder.name}"
    if docker is None:
        return 0
    words = ["--quiet", "--network", "host", "--build-arg", f"BASE={BASE}", "--tag", tag]
    try:
        if _docker(docker, "image", "inspect", BASE).returncode:
            return 0
        if (done := _docker(docker, "build", *words, str(folder))).returncode:
            raise ServerStartError(tag, found="docker cannot build it", details=done.stderr[-2000:])
        return int(_docker(docker, "image", "inspect", "-f", "{{.Size}}", tag).stdout)
    finally:
        _docker(docker, "image", "rm", tag)


def _docker(docker: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([docker, *words], capture_output=True, text=True, check=False)
