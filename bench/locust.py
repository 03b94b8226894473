"""The rate of one Locust process on `digits`, and its cost compared with a raw tritonclient loop."""

from __future__ import annotations

import statistics
import time
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.report import Ratio, Report
from bench.setting import Setting, served
from tritonkit.errors import ClientError
from tritonkit.perf.load import LoadPlan, run_load
from tritonkit.repository.export import load_hook
from tritonkit.repository.modelspec import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.perf.load import LoadSeries

__all__ = ["run"]

ROOT = Path(__file__).resolve().parent.parent
MODEL = "digits"
MANY = 32
IMAGES = 64
WARM_CALLS = 20
PROMISED_PER_S = 300.0


def run(setting: Setting) -> Report:
    """Requests per second from one Locust process, and the ratio of its time per request to a raw loop's."""
    images = load_hook(load(ROOT / "models" / MODEL, ROOT), "data:held_out_images", "bench")(IMAGES)
    pngs = [png for png, _ in images]
    with served(setting, [MODEL]) as address:
        rounds = [_round(setting, address, pngs) for _ in range(setting.rounds)]
    return Report(
        "locust",
        f"one Locust process on {MODEL}, no think time, every answer checked; figures per second and "
        "in ms are of this machine and this run",
        [_rate(rounds), _overhead(rounds), _latency(rounds)],
    )


def _round(setting: Setting, address: str, pngs: Sequence[bytes]) -> dict[str, Any]:
    """Measure each contender once, with the raw loop before and after the others, so that drift affects both."""
    before = _raw(address, pngs, setting.seconds / 2)
    one = _locust(setting, address, 1)
    many = _locust(setting, address, MANY)
    after = _raw(address, pngs, setting.seconds / 2)
    return {"raw": before + after, "one": one, "many": many}


def _raw(address: str, pngs: Sequence[bytes], seconds: float) -> list[float]:
    """Seconds of each call of tritonclient.grpc in a plain loop."""
    from tritonclient.grpc import InferenceServerClient, InferInput

    client = InferenceServerClient(address)
    taken = []
    end = time.perf_counter() + seconds
    for png in cycle(pngs):
        started = time.perf_counter()
        if started > end:
            break
        tensor = InferInput("image", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[png]], dtype=object))
        client.infer(MODEL, [tensor]).as_numpy("label")
        taken.append(time.perf_counter() - started)
    client.close()
    return taken[WARM_CALLS:]


def _locust(setting: Setting, address: str, users: int) -> LoadSeries:
    plan = LoadPlan(ROOT, (MODEL,), address, users=users, duration_s=max(2, round(setting.seconds)), think_time_us=0)
    (series,) = run_load(plan).report.series
    if series.failures:
        raise ClientError(
            f"model {MODEL}, {users} users",
            found=f"{series.failures} of {series.requests} requests failed",
            details=series.first_failure,
        )
    return series


def _rate(rounds: Sequence[dict[str, Any]]) -> Ratio:
    many: list[LoadSeries] = [figures["many"] for figures in rounds]
    return Ratio(
        f"requests/s of {MANY} users / {PROMISED_PER_S:.0f}",
        [series.rate_per_s / PROMISED_PER_S for series in many],
        at_least=1.0,
        facts={
            "requests/s": _median([series.rate_per_s for series in many], 0),
            "p50, p95, p99 ms": [
                _median([getattr(series, name) for series in many]) for name in ("p50_ms", "p95_ms", "p99_ms")
            ],
        },
    )


def _overhead(rounds: Sequence[dict[str, Any]]) -> Ratio:
    """All that happens between two requests of one user counts: choosing, checking, reporting."""
    raw = [1e3 * statistics.mean(figures["raw"]) for figures in rounds]
    one = [1e3 / figures["one"].rate_per_s for figures in rounds]
    return Ratio(
        "time per request, one user / raw loop",
        [a / b for a, b in zip(one, raw, strict=True)],
        facts={
            "ms per request, raw loop": _median(raw),
            "ms per request, one user": _median(one),
            "overhead, ms per request": _median([a - b for a, b in zip(one, raw, strict=True)]),
        },
    )


def _latency(rounds: Sequence[dict[str, Any]]) -> Ratio:
    raw = [1e3 * statistics.median(figures["raw"]) for figures in rounds]
    one: list[float] = [figures["one"].p50_ms for figures in rounds]
    return Ratio(
        "p50 of an answer, one user / raw loop",
        [a / b for a, b in zip(one, raw, strict=True)],
        facts={"p50 ms, raw loop": _median(raw), "p50 ms, one user": _median(one)},
    )


def _median(values: Sequence[float], digits: int = 3) -> float:
    return round(statistics.median(values), digits)
