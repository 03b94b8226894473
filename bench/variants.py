"""The gain of optimizing: the fastest variant over the plain network, served and in process."""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.programs import output
from bench.report import Ratio, Report
from tritonkit.errors import GateError
from tritonkit.machine import cores
from tritonkit.repository.export import BuildCache
from tritonkit.repository.modelspec import load
from tritonkit.repository.optimize.results import Result, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.setting import Setting

__all__ = ["resnet50_repository", "run"]

ROOT = Path(__file__).resolve().parent.parent
PLAIN = "onnx-fp32"
WHOLE = "openvino-int8"  # INT8 with all channels kept
NETWORK = "resnet50_network"
CALLERS = 24  # more than one batch is being worked on, and the next is full by then
BATCHES = (1, 2, 4, 8, 16)
INT8 = ("onnx-int8-dynamic", "onnx-int8-static", WHOLE)
SHIPPED = {
    "resnet50": (PLAIN, "onnx-int8-static", "openvino-fp32", WHOLE, "pruned+openvino-int8"),
    "sentences": (PLAIN, *INT8),
    "digits": (PLAIN, *INT8, "teacher", "pruned", "distilled"),
}
MOST_DROP = {"distilled": 0.02}


def run(setting: Setting) -> Report:
    """The fastest gated ResNet-50 served in batches over FP32 served one by one; sizes and drops of others."""
    results = {model: _built(model, variants) for model, variants in SHIPPED.items()}
    best = max(
        (r for r in results["resnet50"] if r.passed and r.timing), key=lambda r: r.timing.per_s if r.timing else 0.0
    )
    quick = min(
        (r for r in results["resnet50"] if r.passed and r.timing and "int8" in r.variant),
        key=lambda r: r.timing.batch1_ms if r.timing else 0.0,
    )
    with _served() as addresses:
        rounds = [_round(setting, addresses, best.variant, quick.variant, turn) for turn in range(setting.rounds)]
    return Report(
        "variants",
        f"ratios on the same {cores()} threads; images/s and ms are of this machine and this run",
        [*_speed(rounds, best.variant, quick.variant), *_sizes(results), *_smaller(results["digits"])],
    )


@dataclass(frozen=True)
class _Round:
    plain_per_s: float
    best_per_s: float
    best_batch: float
    plain_ms: float
    quick_ms: float
    whole_ms: float
    best_engine_per_s: float


def _built(model: str, variants: Sequence[str]) -> tuple[Result, ...]:
    """Artifacts from the cache if they are there; the rest is built, which takes minutes."""
    spec = load(ROOT / "models" / model, ROOT)
    cache = BuildCache(ROOT / ".tritonkit" / "cache")
    results = evaluate(spec, variants, cache, threads=cores(), timed=True)
    for result in results:
        if result.problem is not None:
            raise result.problem
    return results


@contextmanager
def _served() -> Iterator[dict[str, str]]:
    """Two Tritons: the fastest variant with batching, and FP32 in ONNX Runtime without.

    Both have the spec's instances and threads, which together use every core.
    """
    from tritonkit.serve import serve

    ports: dict[str, Any] = {"grpc_port": 0, "http_port": 0, "metrics_port": 0, "root": ROOT}
    with tempfile.TemporaryDirectory() as folder:
        best = resnet50_repository(Path(folder) / "best", {"variant": "auto"})
        plain = resnet50_repository(
            Path(folder) / "plain", {"variant": PLAIN, "dynamic_batching": False, "max_batch_size": 1}
        )
        with serve(best, models=[NETWORK], **ports) as fast, serve(plain, models=[NETWORK], **ports) as slow:
            yield {"best": fast.grpc, "plain": slow.grpc}


def resnet50_repository(root: Path, serving: dict[str, Any]) -> Path:
    """Build resnet50 from a copy of its spec that differs only in `serving`."""
    import shutil

    import yaml

    from tritonkit.repository.pipeline import build_repository

    shutil.copytree(ROOT / "models" / "resnet50", root / "models" / "resnet50")
    (root / "python_backends").symlink_to(ROOT / "python_backends")
    (root / ".tritonkit").mkdir()
    (root / ".tritonkit" / "cache").symlink_to(ROOT / ".tritonkit" / "cache")
    file = root / "models" / "resnet50" / "model.yaml"
    text = yaml.safe_load(file.read_text())
    text["serving"] = text.get("serving", {}) | serving
    file.write_text(yaml.safe_dump(text))
    return build_repository(root, ("resnet50",)).path


def _round(setting: Setting, addresses: dict[str, str], best: str, quick: str, turn: int) -> _Round:
    """Measure each contender once; the first one changes from round to round."""
    loads: dict[str, Any] = {}
    for server in sorted(addresses, reverse=turn % 2 == 1):
        loads[server] = _load(setting, addresses[server])
    plain = _engine(PLAIN, (1,))
    fast = _engine(quick, (1,))
    whole = _engine(WHOLE, (1,))
    engine = _engine(best, BATCHES)
    return _Round(
        loads["plain"]["per_s"],
        loads["best"]["per_s"],
        loads["best"]["effective_batch"],
        plain[1],
        fast[1],
        whole[1],
        max(size / ms * 1000 for size, ms in engine.items()),
    )


def _load(setting: Setting, address: str) -> dict[str, Any]:
    measured = output(
        Path(sys.executable), "bench.load", address, NETWORK, f"--concurrency={CALLERS}", f"--seconds={setting.seconds}"
    )
    if measured["failures"]:
        raise GateError(NETWORK, found=f"{measured['failures']} requests failed", details=measured["first_failure"])
    return measured


def _engine(variant: str, batches: Sequence[int]) -> dict[int, float]:
    """Milliseconds of each batch size in process."""
    sizes = ",".join(map(str, batches))
    printed = output(Path(sys.executable), "bench.engine", "resnet50", variant, f"--batches={sizes}")
    return {int(size): ms for size, ms in printed["ms"].items()}


def _speed(rounds: Sequence[_Round], best: str, quick: str) -> list[Ratio]:
    last = rounds[-1]
    return [
        Ratio(
            f"resnet50 served: {best} in batches / FP32 one by one",
            [times.best_per_s / times.plain_per_s for times in rounds],
            at_least=8.0,
            facts={
                "images/s": [round(last.best_per_s, 1), round(last.plain_per_s, 1)],
                "effective batch": round(last.best_batch, 2),
                "callers": CALLERS,
            },
        ),
        Ratio(
            f"resnet50 in process, one image: FP32 / {quick}",
            [times.plain_ms / times.quick_ms for times in rounds],
            at_least=4.0,
            facts={"ms": [round(last.plain_ms, 2), round(last.quick_ms, 2)]},
        ),
        Ratio(
            f"resnet50 in process, one image: FP32 / {WHOLE}, all channels kept",
            [times.plain_ms / times.whole_ms for times in rounds],
            facts={"ms": [round(last.plain_ms, 2), round(last.whole_ms, 2)]},
        ),
        Ratio(
            f"resnet50 {best}: served / in process at its best batch",
            [times.best_per_s / times.best_engine_per_s for times in rounds],
            at_least=0.85,
        ),
    ]


def _sizes(results_of: dict[str, tuple[Result, ...]]) -> list[Ratio]:
    """Bytes of INT8 variants over FP32, and the drop of every variant that may be published."""
    ratios = []
    for model, results in results_of.items():
        plain = results[0].artifact
        for result in results[1:]:
            if result.artifact is None or plain is None:
                continue
            quality = result.artifact.quality
            if "int8" in result.variant:
                size = result.artifact.size_bytes / plain.size_bytes
                ratios.append(Ratio(f"{model} {result.variant}: bytes / FP32", [size], at_most=0.27))
            if quality is not None and result.passed and result.variant != "teacher":
                most = MOST_DROP.get(result.variant, 0.01)
                ratios.append(
                    Ratio(
                        f"{model} {result.variant}: drop of {quality.metric}",
                        [quality.drop],
                        at_most=most,
                        facts={"95 %": [quality.drop_low, quality.drop_high]},
                    )
                )
    return ratios


def _smaller(digits: Sequence[Result]) -> list[Ratio]:
    """Parameters and latency of the pruned and the distilled network, as ratios to the teacher's."""
    by_name = {result.variant: result for result in digits}
    teacher = by_name["teacher"]
    ratios = []
    for variant, most in (("pruned", 0.6), ("distilled", 0.1)):
        small = by_name[variant]
        ratios.append(
            Ratio(
                f"digits {variant}: parameters / teacher's", [_parameters(small) / _parameters(teacher)], at_most=most
            )
        )
        if small.timing and teacher.timing:
            ratio = small.timing.batch1_ms / teacher.timing.batch1_ms
            ratios.append(Ratio(f"digits {variant}: latency / teacher's", [ratio]))
    return ratios


def _parameters(result: Result) -> int:
    """Learned numbers in an ONNX file: its float initializers of rank 1 and above."""
    import math

    import onnx

    assert result.artifact is not None  # noqa: S101  those with problems were refused
    graph = onnx.load(result.artifact.folder / "model.onnx").graph
    return sum(math.prod(t.dims) for t in graph.initializer if t.dims and t.data_type == 1)
