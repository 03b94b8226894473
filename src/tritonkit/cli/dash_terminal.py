"""`tritonkit dash --terminal`: a line for each series, its last value and its course."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tritonkit.cli.output import print_line
from tritonkit.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tritonkit.operate.observe import Shown, View
    from tritonkit.repository.report.charts import Line

__all__ = ["course", "drawing", "show"]

_EVERY_S = 2.0
_STEPS = "▁▂▃▄▅▆▇█"
_COURSE = 30
"""Characters."""
_LEAST_ROWS = 5


def show(see: Callable[[], View], duration_s: float | None) -> None:
    """Until the time is over, or Ctrl-C: a live view on a terminal, else one look."""
    from rich.console import Console
    from rich.live import Live

    if not sys.stdout.isatty():
        time.sleep(duration_s or 0)
        for text in _lines(see()):
            print_line(text)
        return
    end = math.inf if duration_s is None else time.monotonic() + duration_s
    try:
        console = Console(highlight=False, emoji=False)
        with Live(console=console, auto_refresh=False) as live:
            while time.monotonic() < end:
                live.update(drawing(see(), console.size.height), refresh=True)
                time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        return


def drawing(view: View, height: int) -> RenderableType:
    """Alerts, a line for each series as far as there is room, and what is empty why.

    Args:
        height: of the terminal, in lines.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name, justify in (("panel", "left"), ("of", "left"), ("now", "right"), ("", "left")):
        table.add_column(name, justify="right" if justify == "right" else "left", no_wrap=True)
    alerts = [Text(text, style="bold red") for text in _alerts(view)]
    alerts = alerts or [Text("no alert fires", style="green")]
    rows = list(_rows(view))
    room = max(_LEAST_ROWS, height - len(alerts) - 4)
    above = ""
    for title, name, value, unit, drawn in rows[:room]:
        said = Text("" if title == above else title, style="bold")
        table.add_row(said, Text(name), Text(f"{value} {unit}".strip()), Text(drawn))
        above = title
    more = len(rows) - room
    rest = f"and {more} more lines: a higher terminal, --model NAME, or the page" if more > 0 else ""
    return Group(*alerts, table, Text(rest or _empty(view), style="dim", overflow="ellipsis"))


def _lines(view: View) -> Iterable[str]:
    """What a file can keep."""
    yield from _alerts(view) or ["no alert fires"]
    for title, name, value, unit, drawn in _rows(view):
        yield f"{title}, {name}: {value} {unit}".rstrip() + f"  {drawn}"
    yield _empty(view)


def _rows(view: View) -> Iterable[tuple[str, str, str, str, str]]:
    """Title, series, last value, unit and course."""
    from tritonkit.operate.observe.page import figure, scaled

    for shown in (each for panels in view.drawn.values() for each in panels):
        values = [value for line in shown.lines for value in _values(line)]
        factor, unit = scaled(shown.panel.unit, max(values, default=0.0))
        for line in shown.lines:
            last = line.points[-1][1] if line.points else None
            name = printable(line.name, lines=False)
            short = unit if len(unit) < 12 else ""
            yield shown.panel.title, name, figure(last, factor), short, course(line, view)


def _alerts(view: View) -> list[str]:
    return [printable(f"{each.name}: {each.annotations.get('summary', '')}", lines=False) for each in view.firing]


def _empty(view: View) -> str:
    """Panels without a line, by the reason."""
    empty: dict[str, list[Shown]] = {}
    for shown in (each for panels in view.drawn.values() for each in panels):
        if not shown.lines:
            empty.setdefault(shown.empty, []).append(shown)
    return "\n".join(
        f"empty, because {reason}: {'; '.join(each.panel.title for each in shown)}" for reason, shown in empty.items()
    )


def course(line: Line, view: View) -> str:
    """A line in a row of characters, from 0 to its highest value; a space where there is none."""
    most = max(_values(line), default=0.0)
    buckets: list[list[float]] = [[] for _ in range(_COURSE)]
    for at, value in line.points:
        place = int((at - view.at_s + view.chosen.range_s) / view.chosen.range_s * _COURSE)
        if value is not None:
            buckets[min(_COURSE - 1, max(0, place))].append(value)
    return "".join(
        _STEPS[round(max(0.0, sum(b) / len(b)) / most * (len(_STEPS) - 1)) if most > 0 else 0] if b else " "
        for b in buckets
    )


def _values(line: Line) -> list[float]:
    return [value for _, value in line.points if value is not None]
