"""A model's results as the texts of a table, one row for each variant."""

from __future__ import annotations

from typing import Any

from tritonkit.repository.export.artifact import MeasuredQuality
from tritonkit.repository.modelspec.units import format_bytes
from tritonkit.repository.optimize.results import Result
from tritonkit.repository.optimize.variants import PLAINS
from tritonkit.repository.report.collect import ModelReport
from tritonkit.repository.report.on_gpu import GpuResult

__all__ = ["Row", "rows"]

_NONE = "–"


Row = dict[str, Any]
"""The cells of one variant, by name."""


def rows(report: ModelReport) -> list[Row]:
    """The rows, in the order of the results: a variant's own, then the one with its figures on a GPU.

    A variant that no CPU measured has only the second.
    """
    base = next((r for r in report.results if r.variant in PLAINS), None)
    on_gpus = {one.result.variant: one for one in report.gpu_results}
    table: list[Row] = []
    for result in report.results:
        on_gpu = on_gpus.get(result.variant)
        own = [_row(result, base) | {"card": ""}] if on_gpu is None or not on_gpu.alone else []
        own += [_row(on_gpu.result, _base(report, on_gpu)) | {"card": on_gpu.gpu}] if on_gpu else []
        first = {"served": result.variant == report.served, "on_front": result.variant in report.front}
        table += [row | (first if row is own[0] else dict.fromkeys(first, False)) for row in own]
    return table


def _base(report: ModelReport, on_gpu: GpuResult) -> Result | None:
    """The plain variant on the same card."""
    same = (one.result for one in report.gpu_results if one.gpu == on_gpu.gpu)
    return next((result for result in same if result.variant in PLAINS), None)


def _row(result: Result, base: Result | None) -> Row:
    artifact, timing, outcome = result.artifact, result.timing, result.outcome
    assert artifact is not None  # noqa: S101  only what is built is reported
    quality, misses = artifact.quality, outcome.misses if outcome else ()
    plain = base.artifact if base else None
    before = base.timing if base else None
    return {
        "variant": result.variant,
        "numbers": artifact.number_format,
        "kind": _kind(result),
        "size": format_bytes(artifact.size_bytes),
        "size_ratio": f"{artifact.size_bytes / plain.size_bytes:.2f}" if plain else _NONE,
        "quality": f"{quality.value:.4f}" if quality else _NONE,
        # The spec's further metrics: the value, and the reference's.
        "also": [(f"{v:.4f}", f"of {r:.4f}") for v, r in quality.also.values()] if quality else [],
        "drop": _signed(quality.drop) if quality else _NONE,
        "interval": _interval(quality),
        "one": figure(timing.batch1_ms) if timing else _NONE,
        "batch": figure(timing.best_batch_ms / timing.best_batch) if timing else _NONE,
        "batch_detail": f"{timing.best_batch} in {figure(timing.best_batch_ms)}" if timing else "",
        "per_s": f"{timing.per_s:,.0f}" if timing else _NONE,
        "speedup": f"{timing.per_s / before.per_s:.2f}" if timing and before else _NONE,
        "outcome": _outcome(result),
        # Limits that it misses, by their names in model.yaml.
        "missed": dict.fromkeys(miss.field.rpartition(".")[2] for miss in misses),
        "reasons": [f"{m.found}; wanted {m.wanted}; {m.todo}" for m in misses],
    }


def figure(value: float) -> str:
    """A measured figure for people, with three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _signed(value: float) -> str:
    """A figure with four decimals, and no sign for zero."""
    return f"{value:.4f}".replace("-0.0000", "0.0000").replace("-", "−")


def _interval(quality: MeasuredQuality | None) -> str:
    if quality is None or quality.drop_low is None or quality.drop_high is None:
        return ""
    return f"{_signed(quality.drop_low)} to {_signed(quality.drop_high)}"


def _kind(result: Result) -> str:
    if result.artifact is not None and result.artifact.quality is None:
        return "unmeasured"
    return "passed" if result.passed else "refused"


def _outcome(result: Result) -> str:
    kind = _kind(result)
    if kind == "passed" and result.outcome is not None and result.outcome.within_noise:
        return "passed, within noise"
    return "not judged" if kind == "unmeasured" else kind
