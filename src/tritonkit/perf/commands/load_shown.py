"""The output of a language model's load: table, files, and missed targets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tritonkit.cli.output import note, print_line, print_table
from tritonkit.perf.commands.load_open import INTERRUPTED_CODE, report_page, tell_invalid
from tritonkit.perf.commands.report_files import write_reports

if TYPE_CHECKING:
    from tritonkit.perf.load.generation import GenerationReport
    from tritonkit.perf.load.openloop import RateSearch, Slo

__all__ = ["end_generation", "print_generation", "write_generation"]


def end_generation(report: GenerationReport | None, search: RateSearch[GenerationReport] | None, slo: Slo) -> None:
    """Say what was missed, and the exit code."""
    from tritonkit.perf.load.openloop import INTERRUPTED

    is_valid = True
    ended = search.ended if search else report.ended if report else ""
    if ended and ended != INTERRUPTED:
        note(f"ended early: {ended}")
    if report and not search:
        for line in report.missed:
            note(f"missed: {line}")
        is_valid = tell_invalid(report.invalid, bool(str(slo)) and not report.missed)
    if ended == INTERRUPTED:
        note("interrupted: the figures cover the answers that had ended")
        raise typer.Exit(INTERRUPTED_CODE)
    if search:
        raise typer.Exit(0 if search.rate_per_s and not ended else 1)
    if report is None or report.missed or not is_valid or ended:
        raise typer.Exit(1)
    if str(slo):
        note(f"the target {slo} holds")


def print_generation(report: GenerationReport) -> None:
    """The figures on standard output, and what failed on standard error."""
    from tritonkit.perf.load.generation.page import lengths_line
    from tritonkit.perf.load.gpu import gpu_lines

    there = {name: times for name, times in report.times().items() if times}
    if there:
        points = [f"p{p:g}" for p in next(iter(there.values())).percentiles]
        rows = [
            [name, *(f"{ms:.2f}" for ms in (times.mean, *map(times.at, times.percentiles), times.largest))]
            for name, times in there.items()
        ]
        title = f"{report.model}, {report.loop} loop, {report.duration_s:.1f} s; ms"
        print_table(title, ["", "mean", *points, "largest"], rows)
    print_line(
        f"{report.requests} requests, {report.right} right, {report.failures} failed;"
        f" {report.offered_per_s:.2f} due/s, {report.rate_per_s:.2f} right/s"
    )
    print_line(f"{report.tokens_per_s:.1f} tokens/s of answers, {report.prompt_tokens_per_s:.1f} tokens/s of prompts")
    print_line(lengths_line(report))
    print_line(
        f"{report.compared} prompts were sent twice; for {report.differing} of them, the answers begin differently"
    )
    lag, late = report.lag, ""
    if lag:
        late = f"sent {lag.at(50):.2f} ms late in the median, {lag.at(99):.2f} ms at p99; "
    print_line(f"generator: {late}{report.cpu_shares[0]:.0%} of a core")
    for line in gpu_lines(report.gpu):
        print_line(line)
    for words, count in sorted(report.words.items(), key=lambda pair: -pair[1])[:5]:
        note(f"{report.model}: {count} failed: {words}")


def write_generation(
    folder: Path,
    report: GenerationReport,
    search: RateSearch[GenerationReport] | None,
    slo: Slo,
    addresses: Sequence[str],
) -> None:
    """report.html, report.json and seconds.csv."""
    from tritonkit.perf.load.generation.page import generation_csv, generation_text

    text = generation_text(report, slo)
    files = {
        "report.html": report_page(report, text, search, slo, addresses, f"{report.model} under load"),
        "report.json": json.dumps((search or report).to_dict(), indent=1) + "\n",
        "seconds.csv": generation_csv(report),
    }
    write_reports(folder, files)
