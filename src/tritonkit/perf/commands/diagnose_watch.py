"""`tritonkit diagnose --watch`: rate, queue, batches, percentiles, use and verdict, every second."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tritonkit.cli.output import print_line, to_plain
from tritonkit.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tritonkit.perf.diagnose import Diagnosis, Evidence, Observation, Watcher

__all__ = ["percentiles", "show"]

_EVERY_S = 1.0
_PERCENTS = (50, 95, 99)
_NAMES = 2
"""Columns: server and model."""


def show(observer: Watcher, seconds: float | None, target_ms: float, as_json: bool) -> None:
    """Show a live view on a terminal, or else a line each time, until the time is over or Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    try:
        if as_json or not sys.stdout.isatty():
            form = _json if as_json else _line
            for look in _looks(observer, seconds, target_ms):
                print_line(form(*look))
            return
        with Live(console=Console(highlight=False, emoji=False), auto_refresh=False) as live:
            for observation, evidence, diagnosis in _looks(observer, seconds, target_ms):
                live.update(_view(observation, evidence, diagnosis), refresh=True)
    except KeyboardInterrupt:
        return


def _looks(
    observer: Watcher, seconds: float | None, target_ms: float
) -> Iterator[tuple[Observation, Evidence, Diagnosis]]:
    from tritonkit.perf.diagnose import diagnose, evidence_of

    end = math.inf if seconds is None else time.monotonic() + seconds
    while time.monotonic() < end:
        observer.wait(min(_EVERY_S, max(0.0, end - time.monotonic())))
        observation = observer.observation()
        evidence = evidence_of(observation)
        yield observation, evidence, diagnose(evidence, target_ms)


def percentiles(observation: Observation) -> dict[int, float]:
    """Percentiles of our own requests in the window, in ms; empty if none was answered."""
    times = sorted(probe.total_ms for probe in observation.probes if not probe.error)
    if not times:
        return {}
    return {p: times[min(len(times) - 1, len(times) * p // 100)] for p in _PERCENTS}


def _line(observation: Observation, evidence: Evidence, diagnosis: Diagnosis) -> str:
    """One line for a log."""
    rate = sum(server.rate_per_s for server in evidence.servers)
    return f"{rate:.1f} requests/s{_tail(observation)}: {diagnosis.verdict}"


def _tail(observation: Observation) -> str:
    """Percentiles, and the number of requests behind them: few, so that they disturb nothing."""
    count = sum(not probe.error for probe in observation.probes)
    tail = ", ".join(f"p{p} {ms:.1f} ms" for p, ms in percentiles(observation).items())
    return f"; {count} of our own: {tail}" if tail else ""


def _json(observation: Observation, evidence: Evidence, diagnosis: Diagnosis) -> str:
    """One object in a line."""
    from dataclasses import asdict

    facts: dict[str, Any] = diagnosis.to_dict()
    facts["percentiles_ms"] = percentiles(observation)
    facts["servers"] = [asdict(server) for server in evidence.servers]
    return json.dumps(to_plain(facts))


def _view(observation: Observation, evidence: Evidence, diagnosis: Diagnosis) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from tritonkit.perf.commands.diagnose import figures, language_figures

    skipped = 1 if len(evidence.servers) == 1 else 0  # the server's own column says nothing then

    def table(columns: list[str], rows: list[list[str]]) -> Table:
        made = Table(box=None, pad_edge=False)
        for place, column in enumerate(columns[skipped:], skipped):
            named = place < _NAMES
            # Headings break between words; names and words are never cut.
            made.add_column(column, justify="left" if named else "right", no_wrap=named, min_width=0 if named else 8)
        for row in rows:
            made.add_row(*(Text(printable(cell, lines=False)) for cell in row[skipped:]))
        return made

    others, spoken = figures(evidence), language_figures(evidence)
    good = not diagnosis.findings
    lines: list[RenderableType] = [
        Text(
            f"{sum(server.rate_per_s for server in evidence.servers):.1f} requests/s{_tail(observation)}", style="bold"
        ),
        *(table(*rows) for rows in (others, spoken) if rows[1] or (rows is others and not spoken[1])),
        _machine(evidence),
        Text(f"verdict: {diagnosis.verdict}", style="bold green" if good else "bold red"),
    ]
    for finding in diagnosis.findings[:3]:
        lines.append(Text(printable(f"{finding.cause}: {finding.where}: {'; '.join(finding.evidence)}")))
        lines.append(Text(printable(f"  change: {finding.change}"), style="dim"))
    lines += [Text(printable(f"note: {text}"), style="dim") for text in diagnosis.notes]
    return Group(*lines)


def _machine(evidence: Evidence) -> RenderableType:
    from rich.text import Text

    sentences = [
        f"{server.address}: the server uses {m.server_cores:.2f} of {m.cores} cores, others {m.other_cores:.2f}"
        for server in evidence.servers
        if (m := server.machine) is not None
    ]
    return Text("\n".join(sentences), style="dim")
