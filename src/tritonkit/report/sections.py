"""A model's report arranged for the page: sentences, plots, bars and columns, all still plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritonkit.export.artifact import Measured
from tritonkit.report.collect import ModelReport
from tritonkit.report.histogram import Column, columns, used_edges
from tritonkit.report.rows import Row, figure, rows
from tritonkit.report.scatter import Bar, Kind, Point, Scatter, scatter

__all__ = ["OperatorBar", "Section", "section"]

_WIDTHS = (820.0, 360.0)
"""Of the plot on a desk and on a phone: its text must be as large on both."""
_SHOWN = 15


@dataclass(frozen=True)
class OperatorBar:
    """One bar: milliseconds of a run, and the share of all operators together, 0 to 1."""

    name: str
    kind: str
    ms: float
    share: float


@dataclass(frozen=True)
class Section:
    """One model, as the template takes it."""

    report: ModelReport
    summary: tuple[str, ...]
    metric: str
    also: tuple[str, ...]
    """Names of further metrics."""
    threads: int | None
    rows: tuple[Row, ...]
    plots: tuple[Scatter, ...]
    """One for each width; none where nothing was both measured and timed."""
    plot_text: str
    unplotted: tuple[str, ...]
    operators: tuple[OperatorBar, ...]
    kinds: tuple[OperatorBar, ...]
    total_ms: float
    histograms: tuple[tuple[str, Measured, tuple[Column, ...]], ...]
    most: float
    """The largest share of any column, to which all are drawn."""
    notes: tuple[tuple[str, tuple[str, ...]], ...]
    missing: dict[str, tuple[str, ...]]
    """Why a variant is not there -> its names."""


def section(report: ModelReport) -> Section:
    """Arrange one model."""
    table, points = rows(report), _points(report)
    plotted = {point.name for point in points}
    timings = [result.timing for result in report.results if result.timing]
    measured = _measured(report)
    edges = used_edges(quality.differences for _, quality in measured)
    histograms = tuple((name, q, columns(q.differences, edges)) for name, q in measured)
    return Section(
        report=report,
        summary=_summary(report, table),
        metric=measured[0][1].metric if measured else "",
        also=tuple(measured[0][1].also) if measured else (),
        threads=timings[0].threads if timings else None,
        rows=table,
        plots=tuple(scatter(points, _bars(report), width) for width in _WIDTHS) if points else (),
        plot_text=_plot_text(report, points),
        unplotted=tuple(row.variant for row in table if row.variant not in plotted),
        operators=_operators(report),
        kinds=_kinds(report),
        total_ms=sum(time.ms for time in report.operators.times) if report.operators else 0.0,
        histograms=histograms,
        most=max((c.share for _, _, found in histograms for c in found), default=0.0) or 1.0,
        notes=tuple(
            (r.variant, r.artifact.notes) for r in report.results if r.artifact and r.artifact.notes
        ),
        missing={
            why: tuple(name for name, reason in report.missing.items() if reason == why)
            for why in dict.fromkeys(report.missing.values())
        },
    )


def _measured(report: ModelReport) -> list[tuple[str, Measured]]:
    return [
        (result.variant, result.artifact.quality)
        for result in report.results
        if result.artifact and result.artifact.quality
    ]


def _summary(report: ModelReport, table: Sequence[Row]) -> tuple[str, ...]:
    """How many there are, and what the published one is worth."""
    counts = [
        f"{count} {words}"
        for kind, words in (("passed", "passed the gate"), ("refused", "refused"))
        if (count := sum(row.kind == kind for row in table))
    ]
    built = "1 variant is built" if len(table) == 1 else f"{len(table)} variants are built"
    first = f"{built}{': ' if counts else ''}{', '.join(counts)}."
    served = next((row for row in table if row.served), None)
    if served is None:
        return first, "None of them may be published."
    parts = [f"Published: {served.variant}"]
    if served.speedup not in ("–", "1.00"):
        parts.append(f"{served.speedup} times the items per second of onnx-fp32")
    if served.size_ratio not in ("–", "1.00"):
        parts.append(f"{served.size_ratio} of its size")
    return first, ", ".join(parts) + "."


def _points(report: ModelReport) -> tuple[Point, ...]:
    front = report.front
    points = []
    for result in report.results:
        if result.timing is None or result.artifact is None or result.artifact.quality is None:
            continue
        name = result.variant
        passing: Kind = "front" if name in front else "passed"
        kind: Kind = passing if result.passed else "refused"
        points.append(
            Point(
                name, result.timing.batch1_ms, result.artifact.quality.value, kind, name == report.served
            )
        )  # fmt: skip
    return tuple(points)


def _bars(report: ModelReport) -> tuple[Bar, ...]:
    """The least quality the gate takes: another one for those that are held against a teacher."""
    least: dict[float, str] = {}
    for _, quality in _measured(report):
        bar = max(quality.reference - report.max_drop, report.at_least or float("-inf"))
        least.setdefault(round(bar, 6), quality.against)
    if len(least) == 1:
        return tuple(Bar(bar, f"gate {bar:.4g}") for bar in least)
    return tuple(Bar(bar, f"gate {bar:.4g}, against {name}") for bar, name in least.items())


def _plot_text(report: ModelReport, points: Sequence[Point]) -> str:
    """The plot in words."""
    told = {p.name: f"{p.name} {figure(p.ms)} ms, {p.quality:.4f}" for p in points}
    refused = [told[point.name] for point in points if point.kind == "refused"]
    others = [told[point.name] for point in points if point.kind == "passed"]
    parts = ["Milliseconds for one item to the right, the metric upwards."]
    for words, names in (
        ("Front", [told[name] for name in report.front]),
        ("Other variants that pass", others),
        ("Refused by the gate", refused),
    ):
        parts += [f"{words}: {'; '.join(names)}."] if names else []
    return " ".join(parts)


def _operators(report: ModelReport) -> tuple[OperatorBar, ...]:
    """The slowest operators, and all others as one bar."""
    times = report.operators.times if report.operators else ()
    total = sum(time.ms for time in times) or 1.0
    bars = [OperatorBar(t.name, t.kind, t.ms, t.ms / total) for t in times[:_SHOWN]]
    rest = sum(time.ms for time in times[_SHOWN:])
    if len(times) > _SHOWN:
        bars.append(OperatorBar(f"{len(times) - _SHOWN} others", "", rest, rest / total))
    return tuple(bars)


def _kinds(report: ModelReport) -> tuple[OperatorBar, ...]:
    """All operators of one kind together, slowest first."""
    times = report.operators.times if report.operators else ()
    total = sum(time.ms for time in times) or 1.0
    sums: dict[str, float] = {}
    for time in times:
        sums[time.kind] = sums.get(time.kind, 0.0) + time.ms
    return tuple(
        OperatorBar(kind, kind, ms, ms / total) for kind, ms in _largest_first(sums.items())
    )


def _largest_first(pairs: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    return sorted(pairs, key=lambda pair: pair[1], reverse=True)
