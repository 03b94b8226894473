"""An open-loop run as one HTML page, and its seconds as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import tritonkit
from tritonkit.perf.load.gpu import GpuReport, gpu_lines
from tritonkit.perf.load.kinds import SEQUENCE
from tritonkit.perf.load.openloop.counters import ServerSecond
from tritonkit.perf.load.openloop.find_rate import RateSearch
from tritonkit.perf.load.openloop.results import OpenReport, OpenSeries, Second
from tritonkit.perf.load.openloop.slo import Slo
from tritonkit.perf.load.openloop.units import UNITS, named_times
from tritonkit.repository.report.charts import Columns, Line, columns, lines
from tritonkit.repository.report.page import Machine, environment

__all__ = ["RunText", "answers_line", "counters_csv", "csv_text", "page", "run_text", "seconds_csv"]

_WIDTH = 900.0
_COLUMNS = 60
_HOW = "Requests were sent at their moments, whatever the server did; latency counts from the moment each was due."
_HOW_SEQUENCES = (
    "Whole sequences arrived at their moments, whatever the server did. Latency is that of their calls: the first"
    " counts from the moment the sequence was due, each later one from the answer to the one before."
)


@dataclass(frozen=True)
class RunText:
    """A page's text about a run: how the load was sent, and a section for each model."""

    how: str
    sections: Sequence[dict[str, Any]]


def run_text(report: OpenReport, slo: Slo | None = None) -> RunText:
    """The text about an open-loop run."""
    return RunText(_how(report), [_section(series, report, slo) for series in report.series])


def page(
    report: Any,
    text: RunText,
    machine: Machine,
    written: str,
    *,
    title: str,
    slo: Slo | None = None,
    search: RateSearch[Any] | None = None,
    command: str = "",
    local: bool = True,
) -> str:
    """The page about a load: text that needs no other file and no address to be shown.

    Args:
        report: an `OpenReport` or a `GenerationReport`.
        text: the text about the report.
        machine: the machine that sent the load.
        written: the date and time, as readable text.
        command: the command that repeats such a run.
        local: whether the server runs on the same machine.
    """
    template = environment(Path(__file__).parent / "templates").get_template("openloop.html.j2")
    return template.render(
        report=report,
        text=text,
        machine=machine,
        written=written,
        title=title,
        slo=str(slo or ""),
        search=None if search is None else _search_section(search),
        command=command,
        local=local,
        gpu=None if report.gpu is None else _gpu_section(report.gpu),
        version=tritonkit.__version__,
    )


def _gpu_section(gpu: GpuReport) -> dict[str, Any]:
    """The page's section about GPUs."""
    used = [Line(use.card, [(look.at_s, look.busy and 100 * look.busy) for look in use.looks]) for use in gpu.gpus]
    power = [Line(use.card, [(look.at_s, look.power_w) for look in use.looks]) for use in gpu.gpus]
    x = "second of the run"
    text = "Share of the time in which some kernel ran, by Triton's own metrics."
    return {
        "lines": gpu_lines(gpu),
        "plots": [
            (_what("GPU use", x, "%", text), lines(used, width=_WIDTH, height=220)),
            (_what("GPU power", x, "W", "Power of each GPU."), lines(power, width=_WIDTH, height=220)),
        ],
    }


def _how(report: OpenReport) -> str:
    in_sequences = {_is_of_sequences(series) for series in report.series}
    return " ".join(_HOW_SEQUENCES if of_sequences else _HOW for of_sequences in sorted(in_sequences))


def _is_of_sequences(series: OpenSeries) -> bool:
    return series.unit == UNITS[SEQUENCE]


def seconds_csv(report: OpenReport) -> str:
    """A line for each model and second of the run."""
    rows = [{"model": series.model} | asdict(s) for series in report.series for s in series.seconds]
    return csv_text(["model", *(field.name for field in fields(Second))], rows)


def counters_csv(report: OpenReport) -> str:
    """A line for each Triton model and second, of the server's own counters."""
    return csv_text([field.name for field in fields(ServerSecond)], [dict(c) for c in report.counters])


def csv_text(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Rows under a line of names."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _section(series: OpenSeries, report: OpenReport, slo: Slo | None) -> dict[str, Any]:
    rows = [
        (name, times.mean, list(times.percentiles.values()), times.largest)
        for _, name, times in named_times(series)
        if times
    ]
    points = [f"p{percent:g}" for percent in series.latency.percentiles] if series.latency else []
    return {
        "series": series,
        "summary": (
            f"{series.requests} {series.unit} were due in {report.duration_s:.1f} s, {series.offered_per_s:.1f} a"
            f" second; {series.rate_per_s:.1f} a second were answered right, {series.failures} failed."
            f"{answers_line(series)}"
        ),
        "points": points,
        "rows": rows,
        "plots": [plot for plot in _plots(series, report, slo) if plot[1] is not None],
        "words": sorted(series.words.items(), key=lambda pair: -pair[1])[:20],
    }


def answers_line(series: OpenSeries) -> str:
    """The number of answers if a request or sequence has several, as a sentence that follows others."""
    answers = series.answers
    if answers is None:
        return ""
    if _is_of_sequences(series):
        return f" A sequence has {answers.calls} calls: {answers.per_s:.1f} a second were answered right."
    return f" {answers.count} replies came to those that were right, {answers.per_s:.1f} a second."


def _plots(series: OpenSeries, report: OpenReport, slo: Slo | None) -> list[tuple[dict[str, str], Any]]:
    """The description of each plot, and the plot; None if it would be empty."""
    seconds, x = series.seconds, "second of the run"
    what = "calls" if _is_of_sequences(series) else "requests"
    limits = [(ms, f"p{p:g} target {ms:g} ms") for p, ms in slo.percentiles.items()] if slo else []
    latency = [
        Line(name, [(s.at_s + 0.5, getattr(s, f"{name}_ms")) for s in seconds]) for name in ("p50", "p95", "p99")
    ]
    rates = [
        Line("due", [(s.at_s + 0.5, float(s.due)) for s in seconds]),
        Line("answered", [(s.at_s + 0.5, float(s.answers)) for s in seconds]),
    ]
    return [
        (
            _what(
                "Latency over time",
                x,
                "ms, logarithmic",
                f"Latency of the {what} due in each second, from the moment each was due.",
            ),
            lines(latency, width=_WIDTH, logarithmic=True, limits=limits),
        ),
        (
            _what(
                f"How long {what} took",
                "ms, logarithmic",
                f"% of {what}",
                "Share of the right answers by their latency.",
                "columns",
            ),
            _distribution(series, limits),
        ),
        (
            _what(
                "Rate", x, f"{what}/s", f"{what.capitalize()} due in each second, and right answers that came in it."
            ),
            lines(rates, width=_WIDTH, height=200),
        ),
        (
            _what("Queue", x, "ms", "Mean time in each model's queue, by Triton's own counters."),
            lines(_counted(report, "queue_ms"), width=_WIDTH, height=220),
        ),
        (
            _what("Batch size", x, "items", "Items that each model ran together, by Triton's own counters."),
            lines(_counted(report, "batch"), width=_WIDTH, height=220),
        ),
    ]


def _what(title: str, x: str, y: str, text: str, kind: str = "lines") -> dict[str, str]:
    return {"title": title, "x": x, "y": y, "text": text, "kind": kind}


def _counted(report: OpenReport, key: str) -> list[Line]:
    """A line for each Triton model that ran."""
    ran = dict.fromkeys(c["model"] for c in report.counters if c["runs"])
    return [
        Line(
            model, [(max(0.0, (c["at_s"] + c["until_s"]) / 2), c[key]) for c in report.counters if c["model"] == model]
        )
        for model in ran
    ] or [Line("", [])]


def _distribution(series: OpenSeries, limits: list[tuple[float, str]]) -> Columns | None:
    """Columns of several of the histogram's buckets each."""
    edges = series.histogram.edges()
    if not edges:
        return None
    low, high = edges[0][0], edges[-1][1]
    step = max((high / low) ** (1 / _COLUMNS), 1.011)
    count = max(1, math.ceil(math.log(high / low) / math.log(step)))
    sums = [0] * count
    for lower, _, count_in in edges:
        sums[min(int(math.log(lower / low * 1.0001) / math.log(step)), count - 1)] += count_in
    bins = [(low * step**k, low * step ** (k + 1), times) for k, times in enumerate(sums)]
    return columns(bins, "ms", width=_WIDTH, limits=limits)


def _search_section(search: RateSearch[Any]) -> dict[str, Any]:
    """The page's section about a search."""
    percent, ms = search.slo.tightest
    points = sorted((t.rate_per_s, t.tail_ms) for t in search.trials if t.tail_ms is not None)
    return {
        "summary": search.summary,
        "unit": search.unit,
        "trials": search.trials,
        "percent": percent,
        "plot": lines(
            [Line(f"p{percent:g}", points)], width=_WIDTH, logarithmic=True, limits=[(ms, f"target {ms:g} ms")]
        ),
    }
