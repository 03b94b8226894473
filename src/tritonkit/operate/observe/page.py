"""A look as one HTML page, and its figures as text."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import tritonkit
from tritonkit.operate.observe.look import MOST_LINES, Shown, View
from tritonkit.operate.observe.panel import BYTES, Unit
from tritonkit.repository.report.charts import Line, Lines, lines
from tritonkit.repository.report.page import environment

__all__ = ["DrawnPanel", "drawn", "figure", "page", "scaled"]

_WIDTH, _HEIGHT = 420.0, 190.0
_MINUTES_S = 180.0
"""A longer axis is in minutes."""
_BINARY = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))


@dataclass(frozen=True)
class DrawnPanel:
    """A panel as the page has it."""

    shown: Shown
    unit: str
    plot: Lines | None
    latest: list[tuple[str, str]]
    """Each line's name, and its last value."""
    hues: list[int]
    """Color of each line."""


def page(view: View, *, refresh_s: float = 0.0, command: str = "") -> str:
    """The page as HTML that needs no other file and no network.

    Args:
        refresh_s: seconds between the script's requests for a newer page from the same server; 0: none.
        command: the command that shows the page again.
    """
    template = environment(Path(__file__).parent / "templates").get_template("dash.html.j2")
    hues: dict[str, int] = {}
    sections = {
        # Empty panels come last: they are looked at least.
        title: sorted((drawn(panel, view, hues) for panel in shown), key=lambda panel: not panel.plot)
        for title, shown in view.drawn.items()
    }
    return template.render(
        view=view,
        sections=sections,
        refresh_ms=round(refresh_s * 1000),
        command=command,
        written=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.at_s)),
        x_name="minutes ago" if _in_minutes(view) else "seconds ago",
        version=tritonkit.__version__,
    )


def drawn(shown: Shown, view: View, hues: dict[str, int]) -> DrawnPanel:
    """Lay a panel out.

    Args:
        hues: colors by name, so that a model has the same color in all panels; new names are added.
    """
    values = [value for line in shown.lines for _, value in line.points if value is not None]
    factor, unit = scaled(shown.panel.unit, max(values, default=0.0))
    per = 60.0 if _in_minutes(view) else 1.0
    # The names stand below the plot, where there is room for them on a phone too.
    drawn_lines = [
        Line("", [((at - view.at_s) / per, v and v / factor) for at, v in line.points]) for line in shown.lines
    ]
    limits = [(value / factor, name) for value, name in shown.panel.limits]
    plot = lines(drawn_lines, width=_WIDTH, height=_HEIGHT, limits=limits) if drawn_lines else None
    latest = [(line.name, figure(_last(line), factor)) for line in shown.lines]
    return DrawnPanel(shown, unit, plot, latest, _colours([name for name, _ in latest], hues))


def _colours(names: list[str], hues: dict[str, int]) -> list[int]:
    """Colors of a plot's lines; none is used twice as long as there are enough."""
    used: list[int] = []
    for name in names:
        hue = hues.setdefault(name, len(hues) % MOST_LINES)
        free = [index for index in range(MOST_LINES) if index not in used]
        used.append(hue if hue in free or not free else free[0])
    return used


def _in_minutes(view: View) -> bool:
    return view.chosen.range_s > _MINUTES_S


def scaled(unit: Unit, most: float) -> tuple[float, str]:
    """The divisor of values, and their unit after division."""
    if unit == BYTES:
        return next(((f, name) for name, f in _BINARY if most >= f), (1.0, unit.text))[:2]
    return 1.0, unit.text


def figure(value: float | None, factor: float = 1.0) -> str:
    """Three digits, without powers of ten as far as people read them."""
    if value is None:
        return "–"
    value /= factor
    if abs(value) >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.3g}"


def _last(line: Line) -> float | None:
    return line.points[-1][1] if line.points else None
