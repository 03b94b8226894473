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

from bench.gpu.loads import Loads
from bench.gpu.models import ENCODER, FP16, FP32, MLP
from bench.gpu.networks import FULL, SMALL
from bench.programs import ROOT
from tritonkit.errors import TritonkitError
from tritonkit.serve import serve

if TYPE_CHECKING:
    from bench.gpu.networks import Size

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
    """

    out: Path
    scale: Scale
    end: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, number: int, what: str, model: str, **figures: Any) -> dict[str, Any]:
        """Keep a row."""
        row = {"round": number, "what": what, "model": model} | figures
        self.rows.append(row)
        draft = self.out.with_suffix(".part")
        draft.write_text(json.dumps(self.facts | {"rows": self.rows}, indent=1))
        draft.replace(self.out)
        print(_line(row), flush=True)
        return row

    def engine(self, number: int, engine: Engine, model: str, file: str, batch: int, copies: bool = False) -> None:
        """Time an engine in process."""
        if self._is_over(number, model):
            return
        size = self.scale.size
        request = {"model": file, "kind": model.partition("_")[0], "batch": batch, "copies": copies}
        request |= {"seconds": self.scale.seconds / 3, "gpu": self.scale.gpu}
        answer = engine.run(**request, pixels=size.pixels, most=size.most)
        self.add(number, "engine", model, batch=batch, copies=copies, **answer)

    def load(self, number: int, loads: Loads, model: str, callers: int, way: str = "grpc") -> dict[str, Any]:
        """Load the server; the row, which has an `error` where that failed."""
        if self._is_over(number, model):
            return {}
        try:
            return self.add(number, "served", **loads.closed(model, callers, way))
        except (TritonkitError, OSError, subprocess.SubprocessError) as error:
            return self.add(number, "served", model, way=way, callers=callers, error=_reason(error))

    def pace(self, number: int, loads: Loads, model: str, per_s: float, way: str) -> None:
        """Load the server at a rate."""
        if self._is_over(number, model):
            return
        try:
            self.add(number, "paced", rate=per_s, **loads.paced(model, per_s, way))
        except (TritonkitError, OSError, subprocess.SubprocessError) as error:
            self.add(number, "paced", model, way=way, rate=per_s, error=_reason(error))

    def _is_over(self, number: int, model: str) -> bool:
        """Whether the step's time is over; a row says what was left out."""
        if time.monotonic() < self.end:
            return False
        self.add(number, "left out", model, error="the step's time was over")
        return True


def _reason(error: Exception) -> str:
    return getattr(error, "found", "") or str(error).splitlines()[0]


def _line(row: dict[str, Any]) -> str:
    """A row as a line of progress."""
    figures = row.get("error") or f"{row['per_s']:.0f}/s"
    details = [f"{row[key]}" for key in ("way", "callers") if row.get(key) and "error" not in row]
    return f"  round {row['round']}: {row['what']} {row['model']} {' '.join(details)}: {figures}"


def rounds(measuring: Measuring, loads: Loads, ort: Engine, torch: Engine | None, files: dict[str, str]) -> None:
    """Measure both sides of each goal in turns, so that a drift of the clock touches both."""
    scale = measuring.scale
    for number in range(scale.rounds):
        measuring.engine(number, ort, FP16, files[FP16], scale.batch)
        for way in ("grpc", "system") if number % 2 else ("system", "grpc"):
            measuring.load(number, loads, FP16, scale.callers, way)
        measuring.engine(number, ort, FP16, files[FP16], scale.batch)
        measuring.engine(number, ort, FP16, files[FP16], 1, copies=True)
        measuring.load(number, loads, FP16, 1, "system")
        measuring.load(number, loads, FP16, 1, "grpc")
        measuring.engine(number, ort, ENCODER, files[ENCODER], scale.batch)
        measuring.load(number, loads, ENCODER, scale.callers)
        if EAGER in files:
            measuring.load(number, loads, EAGER, 1)
        if torch is not None:
            measuring.engine(number, torch, EAGER, "", 1, copies=True)
    rates = {
        way: [
            row["per_s"] for row in measuring.rows if row.get("way") == way and row["model"] == FP16 and "per_s" in row
        ]
        for way in ("system", "grpc")
    }
    way = "system" if rates["system"] else "grpc"
    for number in range(scale.rounds if rates[way] else 0):
        measuring.pace(number, loads, FP16, 0.8 * max(rates[way]), way)


def once(measuring: Measuring, loads: Loads, ort: Engine, torch: Engine | None, files: dict[str, str]) -> None:
    """Measure the other rows of the tables: each engine by batch size, and the server by callers and ways."""
    scale = measuring.scale
    for model in (FP32, FP16, ENCODER):
        for batch in (1, 8, 32, 64):
            if batch <= scale.batch:
                measuring.engine(0, ort, model, files[model], batch)
    for batch in (1, 8, 32, 64) if torch is not None else ():
        if batch <= scale.batch and torch is not None:
            measuring.engine(0, torch, EAGER, "", batch, copies=True)
    for model, callers, way in (
        (FP32, 1, "grpc"),
        (FP32, scale.callers, "grpc"),
        (FP16, scale.callers, "cuda"),
        (MLP, 1, "grpc"),
        (MLP, scale.callers, "grpc"),
        (ENCODER, 1, "grpc"),
        *((model, scale.callers, "grpc") for model in files if model not in (FP32, FP16, ENCODER, MLP)),
    ):
        measuring.load(0, loads, model, callers, way)


def _files(repository: Path) -> dict[str, str]:
    """The network of each model in the repository; eager PyTorch has none."""
    models = {path.name: path for path in sorted(repository.iterdir()) if (path / "config.pbtxt").is_file()}
    return {name: str(next(path.glob("*/model.onnx"), "")) for name, path in models.items()}


def run(options: argparse.Namespace, scale: Scale) -> None:
    """Serve, measure, and end."""
    measuring = Measuring(options.out, scale, time.monotonic() + options.limit)
    files = _files(options.repository)
    with ExitStack() as stack:
        ort = stack.enter_context(Engine(options.server_python, "ort"))
        torch = stack.enter_context(Engine(options.torch_python, "torch")) if options.torch_python else None
        begun = time.monotonic()
        endpoint = stack.enter_context(
            serve(options.repository, grpc_port=0, metrics_port=0, root=options.root, shared_memory_api=True)
        )
        loads = Loads(endpoint.grpc, endpoint.admin_key, scale.size.pixels, scale.size.most, scale.seconds)
        measuring.facts |= {
            "generator": loads.generator,
            "triton": endpoint.version,
            "ready_s": round(time.monotonic() - begun, 1),
            "not_served": dict(endpoint.failed),
        }
        rounds(measuring, loads, ort, torch, files)
        once(measuring, loads, ort, torch, files)


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
