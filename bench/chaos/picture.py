"""Answers per second with the faults marked, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from bench.programs import ROOT
from tritonkit.repository.report.charts import Line, Plot, lines
from tritonkit.repository.report.page import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.chaos.faults import Fault

__all__ = ["drawn"]

_ROW, _ROWS = 12.0, 16
_STYLE = (
    "svg{font-family:sans-serif;background:#fff}text{fill:#333}.grid{stroke:#ddd}.axis{stroke:#333}"
    ".line{fill:none;stroke-width:1.5}.line-0{stroke:#0072b2}.line-1{stroke:#d55e00}"
    ".kill{stroke:#d55e00}.stop{fill:#e69f00;fill-opacity:.25}.fault{font-size:10px}"
)


def drawn(right: Sequence[int], other: Sequence[int], faults: Sequence[Fault]) -> str:
    """The picture: right answers and failures in each second, kills as lines, stops as bands of their length."""
    plotted = [Line("right answers", _points(right)), Line("failed", _points(other))]
    plot = lines(plotted, width=1200, height=440)
    if plot is None:
        return '<svg xmlns="http://www.w3.org/2000/svg"/>\n'
    template = environment(ROOT / "src/tritonkit/perf/plan/templates").from_string(
        '{% import "charts.svg.j2" as svg %}'
        '{{ svg.lines(plot, "chaos", "Answers", "Calls that ended, with faults.", "seconds", "calls/s") }}'
    )
    head, _, body = template.render(plot=plot).strip().partition(">")
    marks = [_mark(plot, fault, number, len(right)) for number, fault in enumerate(faults)]
    rows = [line for line in body.splitlines() if line.strip()]
    return "\n".join(
        [f'{head} xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>', *rows[:-1], *marks, rows[-1], ""]
    )


def _points(counts: Sequence[int]) -> list[tuple[float, float | None]]:
    return [(float(second), float(count)) for second, count in enumerate(counts)]


def _mark(plot: Plot, fault: Fault, number: int, seconds: int) -> str:
    """One fault, with its name in a row of its own among the next few."""
    wide = (plot.right - plot.left) / max(1, seconds - 1)
    x, y = plot.left + fault.at_s * wide, plot.top + 10 + _ROW * (number % _ROWS)
    name = escape(fault.member.part)
    band = (
        f'<rect class="stop" x="{x:.1f}" y="{plot.top}" width="{fault.stopped_s * wide:.1f}"'
        f' height="{plot.bottom - plot.top}"/>'
        if fault.stopped_s
        else ""
    )
    line = f'<line class="kill" x1="{x:.1f}" x2="{x:.1f}" y1="{plot.top}" y2="{plot.bottom}"/>'
    return f'{band}{line if not fault.stopped_s else ""}<text class="fault" x="{x + 2:.1f}" y="{y:.1f}">{name}</text>'
