"""The step `serving`: engine and server in turns on one card, by which the goals of `make gpu` are judged.

`python -m bench.gpu.serving REPOSITORY --out FILE` starts a server, and writes each figure into FILE as soon as it is
there: what was measured before an interruption is kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.gpu.accuracy import answers, compared
from bench.gpu.loads import Loads
from bench.gpu.sizes import ENCODER, FP16, FP32, FULL, INT8, MLP, SMALL, TF32
from bench.programs import ROOT
from tritonkit.errors import ClientError, TritonkitError
from tritonkit.serve import serve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.gpu.sizes import Size

__all__ = ["EAGER", "Engine", "Measuring", "Scale"]

EAGER = "resnet50_eager"
"""Eager PyTorch in a Python model, where the server environment has torch."""


@dataclass(frozen=True)
class Scale:
    """The extent of the measurements.

    Args:
        rounds: repeats of what the goals compare, in turns.
        seconds: the counted time of a load; an engine takes a third of it.
        callers: those that saturate the server.
        batch: the engine's batch.
        size: the sizes of the networks.
        gpu: False for a rehearsal on the CPU.
    """

    rounds: int = 3
    seconds: float = 2.1
    callers: int = 256
    batch: int = 64
    size: Size = FULL
    gpu: bool = True


REHEARSAL = Scale(rounds=1, seconds=0.4, callers=8, batch=8, size=SMALL, gpu=False)


class Engine:
    """The process of bench.gpu.engine: it keeps its networks between the rounds."""

    def __init__(self, python: Path, name: str) -> None:
        self._process = subprocess.Popen(
            [str(python), "-m", "bench.gpu.engine", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )

    def run(self, **request: Any) -> dict[str, Any]:
        """Time one setting; a failure is an answer with `error`."""
        assert self._process.stdin is not None  # noqa: S101 - requested above
        assert self._process.stdout is not None  # noqa: S101
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"the engine ended: {self._process.wait()}"}
        return answer

    def __enter__(self) -> Engine:
        """Use it for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it by ending its input."""
        self._process.communicate()


@dataclass
class Measuring:
    """Rows of figures, written after each.

    Args:
        out: the file.
        scale: the extent.
        end: the time by `time.monotonic` after which nothing is begun.
        loads: the loads of the server.
        ort, torch: the engines in process; eager PyTorch may be absent.
        files: the network of each model; eager PyTorch has none.
    """

    out: Path
    scale: Scale
    end: float
    loads: Loads
    ort: Engine
    torch: Engine | None
    files: dict[str, str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, number: int, what: str, model: str, **figures: Any) -> None:
        """Keep a row."""
        row = {"round": number, "what": what, "model": model} | figures
        self.rows.append(row)
        self._write()
        print(_line(row), flush=True)

    def _write(self) -> None:
        draft = self.out.with_suffix(".part")
        draft.write_text(json.dumps(self.facts | {"rows": self.rows}, indent=1))
        draft.replace(self.out)

    def engine(self, number: int, model: str, batch: int, copies: bool = False) -> None:
        """Time an engine in process."""
        engine = self.torch if model == EAGER else self.ort
        if engine is None or self._is_over(f"the engine with {model}, batch {batch}"):
            return
        request = self._request(model, batch) | {"copies": copies, "seconds": self.scale.seconds / 3}
        self.add(number, "engine", model, batch=batch, copies=copies, **engine.run(**request))

    def _request(self, model: str, batch: int) -> dict[str, Any]:
        size = self.scale.size
        request = {"model": self.files.get(model, ""), "kind": model.partition("_")[0], "batch": batch}
        return request | {"gpu": self.scale.gpu, "pixels": size.pixels, "most": size.most}

    def load(self, number: int, model: str, callers: int, way: str = "grpc") -> None:
        """Load the server; the row has an `error` where that failed."""
        if model not in self.files or self._is_over(f"{callers} callers of {model} by {way}"):
            return
        try:
            self.add(number, "served", **self.loads.closed(model, callers, way))
        except _FAILURES as error:
            self.add(number, "served", model, way=way, callers=callers, error=_reason(error))

    def pace(self, number: int, model: str, share: float, *ways: str) -> None:
        """Load the server at a share of the highest rate so far, by the first way that has one."""
        rates: dict[str, float] = {}
        for row in self.rows:
            if row["model"] == model and "per_s" in row and row.get("way") in ways:
                rates[row["way"]] = max(row["per_s"], rates.get(row["way"], 0.0))
        way = next((way for way in ways if way in rates), "")
        if not way or self._is_over(f"{model} at a rate"):
            return
        rate = share * rates[way]
        try:
            self.add(number, "paced", rate=rate, **self.loads.paced(model, rate, way))
        except _FAILURES as error:
            self.add(number, "paced", model, way=way, rate=rate, error=_reason(error))

    def accuracy(self, model: str) -> None:
        """Compare the served answers of a variant of ResNet-50 with those of the FP32 file on the CPU."""
        if model not in self.files or self._is_over(f"the answers of {model}"):
            return
        try:
            served = answers(self.loads.address, model, self.scale.size.pixels)
            self.add(0, "accuracy", model, **compared(served, self._reference(len(served))))
        except _FAILURES as error:
            self.add(0, "accuracy", model, error=_reason(error))

    def _reference(self, images: int) -> NDArray[Any]:
        file = self.out.with_suffix(".npy")
        if "reference" not in self.facts:
            self.facts["reference"] = self.ort.run(**self._request(FP32, images), answers=str(file))
        if "error" in self.facts["reference"]:
            raise ClientError("the reference of FP32", found=self.facts["reference"]["error"])
        reference: NDArray[Any] = np.load(file)
        return reference

    def _is_over(self, title: str) -> bool:
        """Whether the step's time is over; the titles of what was left out are kept."""
        if time.monotonic() < self.end:
            return False
        self.facts.setdefault("left_out", []).append(title)
        self._write()
        return True


_FAILURES = (TritonkitError, OSError, subprocess.SubprocessError)


def _reason(error: Exception) -> str:
    return getattr(error, "found", "") or str(error).splitlines()[0]


def _line(row: dict[str, Any]) -> str:
    """A row as a line of progress."""
    figures = row.get("error") or (f"{row['per_s']:.0f}/s" if "per_s" in row else f"{row['difference']:.1g} from FP32")
    details = [f"{row[key]}" for key in ("way", "callers", "batch") if row.get(key) and "error" not in row]
    return f"  round {row['round']}: {row['what']} {row['model']} {' '.join(details)}: {figures}"


def measure(measuring: Measuring) -> None:
    """The goals once, the variants of ResNet-50, the goals again, and the rest of the tables, as far as time goes."""
    goals(measuring, 0)
    variants(measuring)
    for number in range(1, measuring.scale.rounds):
        goals(measuring, number)
    once(measuring)


def goals(measuring: Measuring, number: int) -> None:
    """Measure both sides of each goal in turns, so that a drift of the clock touches both."""
    scale = measuring.scale
    measuring.engine(number, FP16, scale.batch)
    for way in ("grpc", "system") if number % 2 else ("system", "grpc"):
        measuring.load(number, FP16, scale.callers, way)
    measuring.engine(number, FP16, scale.batch)
    measuring.engine(number, FP16, 1, copies=True)
    measuring.load(number, FP16, 1, "system")
    measuring.load(number, FP16, 1)
    measuring.load(number, EAGER, 1)
    measuring.engine(number, ENCODER, scale.batch)
    measuring.load(number, ENCODER, scale.callers)
    measuring.pace(number, FP16, 0.8, "system", "grpc")


def variants(measuring: Measuring) -> None:
    """Measure each variant of ResNet-50 for one caller and at load, and compare its answers."""
    for model in (FP32, TF32, FP16, INT8):
        measuring.accuracy(model)
        for callers in (1, measuring.scale.callers):
            if model != FP16:  # the goals have it
                measuring.load(0, model, callers)


def once(measuring: Measuring) -> None:
    """Measure the other rows of the tables: each engine by batch size, and the server by callers and ways."""
    scale = measuring.scale
    for model, callers, way in (
        (FP16, scale.callers, "cuda"),
        (MLP, 1, "grpc"),
        (MLP, scale.callers, "grpc"),
        (ENCODER, 1, "grpc"),
        (EAGER, scale.callers, "grpc"),
    ):
        measuring.load(0, model, callers, way)
    sizes = [batch for batch in (1, 8, 32, 64) if batch <= scale.batch]
    for model in (FP32, FP16, ENCODER):
        for batch in sizes:
            measuring.engine(0, model, batch)
    for batch in sizes:
        measuring.engine(0, EAGER, batch, copies=True)


def _files(repository: Path) -> dict[str, str]:
    """The network of each model in the repository; eager PyTorch has none."""
    models = {path.name: path for path in sorted(repository.iterdir()) if (path / "config.pbtxt").is_file()}
    return {name: str(next(path.glob("*/model.onnx"), "")) for name, path in models.items()}


def run(options: argparse.Namespace, scale: Scale) -> None:
    """Serve, measure, and end."""
    end = time.monotonic() + options.limit
    with ExitStack() as stack:
        ort = stack.enter_context(Engine(options.server_python, "ort"))
        torch = stack.enter_context(Engine(options.torch_python, "torch")) if options.torch_python else None
        begun = time.monotonic()
        endpoint = stack.enter_context(
            serve(options.repository, grpc_port=0, metrics_port=0, root=options.root, shared_memory_api=True)
        )
        loads = Loads(endpoint.grpc, endpoint.admin_key, scale.size.pixels, scale.size.most, scale.seconds)
        measuring = Measuring(options.out, scale, end, loads, ort, torch, _files(options.repository))
        measuring.facts |= {
            "generator": loads.generator,
            "triton": endpoint.version,
            "ready_s": round(time.monotonic() - begun, 1),
            "not_served": dict(endpoint.failed),
        }
        measure(measuring)


def main() -> int:
    """Measure with the options; 1 where the server did not start."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.serving", description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--root", type=Path, default=ROOT, help="gets .tritonkit/run")
    parser.add_argument("--server-python", type=Path, required=True, help="has ONNX Runtime")
    parser.add_argument("--torch-python", type=Path, help="has PyTorch; default: no eager PyTorch")
    parser.add_argument("--limit", type=float, default=130.0, metavar="SECONDS", help="begin nothing later")
    parser.add_argument("--rehearse", action="store_true", help="small networks on the CPU")
    options = parser.parse_args()
    try:
        run(options, REHEARSAL if options.rehearse else Scale())
    except TritonkitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
