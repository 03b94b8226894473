"""The text of the page about a language model's load, and its seconds as CSV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from tritonkit.perf.load.generation.results import GenerationReport, GenerationSecond
from tritonkit.perf.load.openloop.page import RunText, csv_text
from tritonkit.perf.load.openloop.slo import Slo
from tritonkit.repository.report.charts import Line, lines

__all__ = ["generation_csv", "generation_text", "lengths_line"]

_WIDTH = 900.0
_HOW = {
    "open": "Requests were sent at their moments, whatever the server does; times count from the moment each was due.",
    "closed": "Each stream was followed by the next when it had ended; times count from when a request was sent.",
}


def generation_text(report: GenerationReport, slo: Slo) -> RunText:
    """The text of a page about a language model's load."""
    return RunText(_HOW[report.loop], [_section(report, slo)])


def generation_csv(report: GenerationReport) -> str:
    """A line for each second of the run."""
    return csv_text([field.name for field in fields(GenerationSecond)], [asdict(second) for second in report.seconds])


def lengths_line(report: GenerationReport) -> str:
    """The lengths of prompts and answers in tokens, in a sentence."""
    parts = [
        f"{name}: mean {spread.mean:.1f} tokens, median {spread.p50:g}, {spread.smallest} to {spread.largest}"
        for name, spread in (
            ("intended prompts", report.prompt_asked),
            ("actual prompts", report.prompt_found),
            ("intended answers", report.output_asked),
        )
        if spread
    ]
    if report.clipped:
        parts.append(
            f"{report.clipped} of {report.requests} requests were shortened to the model's {report.window} tokens"
        )
    return "; ".join(parts)


def _section(report: GenerationReport, slo: Slo) -> dict[str, Any]:
    there = {name: times for name, times in report.times().items() if times}
    points = [f"p{p:g}" for p in next(iter(there.values())).percentiles] if there else []
    summary = (
        f"{report.requests} requests were due in {report.duration_s:.1f} s, {report.offered_per_s:.2f} a second;"
        f" {report.rate_per_s:.2f} a second were answered right, {report.failures} failed. {report.tokens_per_s:.1f}"
        f" tokens of answers came in a second; {lengths_line(report)}. {report.compared} prompts were sent twice;"
        f" for {report.differing} of them, the answers begin differently."
    )
    return {
        "series": {"model": report.model},
        "summary": summary,
        "points": points,
        "rows": [(name, times.mean, list(times.percentiles.values()), times.largest) for name, times in there.items()],
        "plots": [plot for plot in _plots(report, slo) if plot[1] is not None],
        "words": sorted(report.words.items(), key=lambda pair: -pair[1])[:20],
    }


def _plots(report: GenerationReport, slo: Slo) -> list[tuple[dict[str, str], Any]]:
    """The description of each plot, and the plot; None if it would be empty."""
    return [
        (
            _what("First token", "ms, logarithmic", "Time to the first token, of the requests due in each second."),
            _drawn(report, "ttft", slo.ttft),
        ),
        (
            _what("Between tokens", "ms, logarithmic", "Time between two pieces of an answer, by when they came."),
            _drawn(report, "itl", slo.itl),
        ),
        (
            _what("Tokens", "tokens/s", "Tokens of answers that came in each second."),
            lines([Line("tokens", _points(report, "tokens"))], width=_WIDTH, height=220),
        ),
        (
            _what("Rate", "requests/s", "Requests due in each second, and how many of these failed."),
            lines(
                [Line("due", _points(report, "due")), Line("failed", _points(report, "failed"))],
                width=_WIDTH,
                height=200,
            ),
        ),
    ]


def _what(title: str, y: str, text: str) -> dict[str, str]:
    return {"title": title, "x": "second of the run", "y": y, "text": text, "kind": "lines"}


def _drawn(report: GenerationReport, name: str, points: Mapping[float, float]) -> Any:
    limits = [(ms, f"p{percent:g} target {ms:g} ms") for percent, ms in points.items()]
    drawn = [Line(p, _points(report, f"{name}_{p}_ms")) for p in ("p50", "p99")]
    return lines(drawn, width=_WIDTH, logarithmic=True, limits=limits)


def _points(report: GenerationReport, key: str) -> list[tuple[float, float | None]]:
    values = [(second.at_s + 0.5, getattr(second, key)) for second in report.seconds]
    return [(at, None if value is None else float(value)) for at, value in values]
