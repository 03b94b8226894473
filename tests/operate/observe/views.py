"""A look as it may come, for the page: lines, gaps, an alert, panels without data."""

from __future__ import annotations

import math

from tritonkit.operate.observe import SECTIONS, Chosen, Need, Panel, Shown, View
from tritonkit.operate.observe.source import Firing
from tritonkit.repository.report.charts import Line

__all__ = ["AT_S", "view"]

AT_S = 1_800_000_000.0
_EMPTY = {Need.gateway, Need.cache}
_FIRING = Firing(
    "ReplicaDown",
    {"alertname": "ReplicaDown", "instance": "b:8002", "severity": "page"},
    {"summary": "b:8002 is <away>", "cause": "The server ended", "command": "tritonkit doctor"},
)


def view(names: tuple[str, ...] = ("digits", "sentences"), range_s: float = 900.0) -> View:
    """Each panel with a line for each name, or its reason."""
    shown = {section.title: [_shown(panel, names, range_s) for panel in section.panels] for section in SECTIONS}
    return View("http://127.0.0.1:9090", AT_S, Chosen(range_s), 20.0, shown, [_FIRING])


def _shown(panel: Panel, names: tuple[str, ...], range_s: float) -> Shown:
    if panel.need in _EMPTY:
        return Shown(panel, (), 0, str(panel.need))
    size = 3e9 if panel.unit.text == "bytes" else 40.0
    lines = tuple(Line(name, [_point(k, place, size, range_s) for k in range(60)]) for place, name in enumerate(names))
    return Shown(panel, lines, 0, "")


def _point(k: int, place: int, size: float, range_s: float) -> tuple[float, float | None]:
    value = size * (1 + 0.3 * math.sin(k / 7 + place)) / (1 + place)
    return AT_S - range_s * (1 - k / 59), None if 20 < k < 24 else value
