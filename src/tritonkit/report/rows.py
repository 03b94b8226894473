"""A model's results as the texts of a table, one row for each variant."""

from __future__ import annotations

from dataclasses import dataclass

from tritonkit.export.artifact import Measured
from tritonkit.optimize.results import Result
from tritonkit.optimize.variants import PLAIN
from tritonkit.report.collect import ModelReport
from tritonkit.spec.units import format_bytes

__all__ = ["Row", "rows"]

_NONE = "–"


@dataclass(frozen=True)
class Row:
    """One variant: every cell's text; `kind` is "passed", "refused" or "unmeasured"."""

    variant: str
    kind: str
    served: bool
    on_front: bool
    size: str
    size_ratio: str
    quality: str
    also: tuple[tuple[str, str], ...]
    """The spec's further metrics: value, and the reference's."""
    drop: str
    interval: str
    one: str
    batch: str
    batch_detail: str
    per_s: str
    speedup: str
    verdict: str
    missed: tuple[str, ...]
    """The limits it misses, by their names in model.yaml."""
    reasons: tuple[str, ...]


def rows(report: ModelReport) -> tuple[Row, ...]:
    """The rows, in the order of the results."""
    base = next((r for r in report.results if r.variant == PLAIN), None)
    front, served = report.front, report.served
    return tuple(
        _row(result, base, result.variant == served, result.variant in front)
        for result in report.results
    )


def _row(result: Result, base: Result | None, served: bool, on_front: bool) -> Row:
    artifact, timing, verdict = result.artifact, result.timing, result.verdict
    assert artifact is not None  # noqa: S101  only what is built is reported
    misses = verdict.misses if verdict else ()
    plain = base.artifact if base else None
    before = base.timing if base else None
    return Row(
        variant=result.variant,
        kind=_kind(result),
        served=served,
        on_front=on_front,
        size=format_bytes(artifact.size_bytes),
        size_ratio=f"{artifact.size_bytes / plain.size_bytes:.2f}" if plain else _NONE,
        quality=f"{artifact.quality.value:.4f}" if artifact.quality else _NONE,
        also=_also(artifact.quality),
        drop=_signed(artifact.quality.drop) if artifact.quality else _NONE,
        interval=_interval(artifact.quality),
        one=figure(timing.batch1_ms) if timing else _NONE,
        batch=figure(timing.best_batch_ms / timing.best_batch) if timing else _NONE,
        batch_detail=f"{timing.best_batch} in {figure(timing.best_batch_ms)}" if timing else "",
        per_s=f"{timing.per_s:,.0f}" if timing else _NONE,
        speedup=f"{timing.per_s / before.per_s:.2f}" if timing and before else _NONE,
        verdict=_verdict(result),
        missed=tuple(dict.fromkeys(miss.field.rpartition(".")[2] for miss in misses)),
        reasons=tuple(f"{m.found}; wanted {m.wanted}; {m.todo}" for m in misses),
    )  # fmt: skip


def figure(value: float) -> str:
    """A measured figure for people: three digits that count."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _signed(value: float) -> str:
    """Four decimals, and no zero with a sign."""
    return f"{value:.4f}".replace("-0.0000", "0.0000").replace("-", "−")


def _interval(quality: Measured | None) -> str:
    if quality is None or quality.drop_low is None or quality.drop_high is None:
        return ""
    return f"{_signed(quality.drop_low)} to {_signed(quality.drop_high)}"


def _also(quality: Measured | None) -> tuple[tuple[str, str], ...]:
    if quality is None:
        return ()
    return tuple(
        (f"{value:.4f}", f"of {reference:.4f}") for value, reference in quality.also.values()
    )


def _kind(result: Result) -> str:
    if result.artifact is not None and result.artifact.quality is None:
        return "unmeasured"
    return "passed" if result.passed else "refused"


def _verdict(result: Result) -> str:
    kind = _kind(result)
    if kind == "unmeasured":
        return "not measured here"
    if kind == "passed" and result.verdict is not None and result.verdict.within_noise:
        return "passed, within noise"
    return kind
