"""A model's report arranged for the page: sentences, plots and columns, all as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritonkit.repository.export.artifact import Artifact, MeasuredQuality
from tritonkit.repository.optimize.results import Result
from tritonkit.repository.optimize.runtimes import OperatorTime
from tritonkit.repository.report.collect import ModelReport
from tritonkit.repository.report.histogram import columns, used_edges
from tritonkit.repository.report.rows import Row, rows
from tritonkit.repository.report.scatter import Dot, GateLine, Kind, scatter

__all__ = ["section"]

_WIDTHS = (820.0, 360.0)
"""Widths of the plot on a desk and on a phone, so that its text is as large on both."""
_SHOWN = 15


def section(report: ModelReport) -> dict[str, Any]:
    """One model, as the template takes it."""
    table, points = rows(report), _points(report)
    plotted = {point.name for point in points}
    timings = [result.timing for result in report.results if result.timing]
    measured = _measured(report.results)
    first = next((q for _, q in (*measured, *_measured([one.result for one in report.gpu_results]))), None)
    edges = used_edges(quality.differences for _, quality in measured)
    histograms = [(name, q, columns(q.differences, edges)) for name, q in measured]
    return {
        "report": report,
        "summary": _summary(report, table),
        "metric": first.metric if first else "",
        "also": list(first.also) if first else [],
        "threads": timings[0].threads if timings else None,
        "apart": _apart(report),
        "rows": table,
        "plots": [scatter(points, _limits(report), width) for width in _WIDTHS] if points else [],
        "unplotted": [row["variant"] for row in table if not row["card"] and row["variant"] not in plotted],
        "operators": _operators(report),
        "kinds": _kinds(report),
        "total_ms": sum(t.ms for t in report.operators.times) if report.operators else 0.0,
        "histograms": histograms,
        # The largest share of any column, to which all are scaled.
        "most": max((c.share for _, _, bars in histograms for c in bars), default=0.0) or 1.0,
        "notes": _notes(report),
        "missing": {
            why: [name for name, reason in report.missing.items() if reason == why]
            for why in dict.fromkeys(report.missing.values())
        },
    }


def _apart(report: ModelReport) -> bool:
    """Whether variants were timed in more than one run, on the CPU or on one GPU."""
    results = [("", result) for result in report.results] + [(one.gpu, one.result) for one in report.gpu_results]
    runs = {(device, result.timing.run) for device, result in results if result.timing}
    return len(runs) > len({device for device, _ in runs})


def _notes(report: ModelReport) -> list[tuple[str, tuple[str, ...]]]:
    """Each variant's notes, and those of the build on a GPU."""
    own = [
        (result.variant, (*result.artifact.notes, *_independence(result.artifact)))
        for result in report.results
        if result.artifact
    ]
    on_gpus = [
        (f"{one.result.variant} on {one.gpu}", one.result.artifact.notes)
        for one in report.gpu_results
        if one.result.artifact
    ]
    return [(name, notes) for name, notes in (*own, *on_gpus) if notes]


def _independence(artifact: Artifact) -> tuple[str, ...]:
    """A note on whether the items of a batch are independent."""
    verdict = artifact.independence
    return (f"items of a batch: {verdict.state}: {verdict.seen}",) if verdict else ()


def _measured(results: Sequence[Result]) -> list[tuple[str, MeasuredQuality]]:
    return [
        (result.variant, result.artifact.quality) for result in results if result.artifact and result.artifact.quality
    ]


def _summary(report: ModelReport, table: Sequence[Row]) -> tuple[str, ...]:
    """A sentence on the number of variants, and on the value of the published one."""
    table = list({row["variant"]: row for row in reversed(table)}.values())  # the first row of each
    counts = [
        f"{count} {words}"
        for kind, words in (("passed", "passed the gate"), ("refused", "refused"))
        if (count := sum(row["kind"] == kind for row in table))
    ]
    built = "1 variant is built" if len(table) == 1 else f"{len(table)} variants are built"
    first = f"{built}{': ' if counts else ''}{', '.join(counts)}."
    served = next((row for row in table if row["served"]), None)
    if served is None:
        return first, "None of them may be published."
    parts = [f"Published: {served['variant']}"]
    if served["speedup"] not in ("–", "1.00"):
        parts.append(f"{served['speedup']} times the items per second of onnx-fp32")
    if served["size_ratio"] not in ("–", "1.00"):
        parts.append(f"{served['size_ratio']} of its size")
    return first, ", ".join(parts) + "."


def _points(report: ModelReport) -> tuple[Dot, ...]:
    points, qualities = [], dict(_measured(report.results))
    for result in report.results:
        if result.timing is None or (name := result.variant) not in qualities:
            continue
        passing: Kind = "front" if name in report.front else "passed"
        kind: Kind = passing if result.passed else "refused"
        ms, value = result.timing.batch1_ms, qualities[name].value
        points.append(Dot(name, ms, value, kind, name == report.served))
    return tuple(points)


def _limits(report: ModelReport) -> tuple[GateLine, ...]:
    """The worst quality that the gate accepts, which differs for variants that are compared with a teacher."""
    least: dict[float, str] = {}
    for _, quality in _measured(report.results):
        limit = max(quality.reference - report.max_drop, report.at_least or float("-inf"))
        if quality.metric in quality.less_is_better:
            limit = min(quality.reference + report.max_drop, report.at_most or float("inf"))
        least.setdefault(round(limit, 6), quality.against)
    several = len(least) > 1
    return tuple(
        GateLine(limit, f"gate {limit:.4g}" + (f", against {name}" if several else "")) for limit, name in least.items()
    )


def _operators(report: ModelReport) -> tuple[OperatorTime, ...]:
    """The slowest operators, and all others as one."""
    times = report.operators.times if report.operators else ()
    if len(times) <= _SHOWN:
        return times
    rest = sum(time.ms for time in times[_SHOWN:])
    return (*times[:_SHOWN], OperatorTime(f"{len(times) - _SHOWN} others", "", rest))


def _kinds(report: ModelReport) -> tuple[tuple[str, float], ...]:
    """Milliseconds of all operators of one kind together, slowest first."""
    sums: dict[str, float] = {}
    for time in report.operators.times if report.operators else ():
        sums[time.kind] = sums.get(time.kind, 0.0) + time.ms
    return tuple(sorted(sums.items(), key=lambda pair: pair[1], reverse=True))
