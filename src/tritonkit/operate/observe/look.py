"""One look at all panels: their queries to a Prometheus, and the results or the reason why there are none."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tritonkit.errors import UsageError
from tritonkit.metrics import GATEWAY_JOB, TRITON_JOB
from tritonkit.operate.observe.panel import Need, Panel
from tritonkit.operate.observe.panels import SECTIONS
from tritonkit.operate.observe.source import Firing, Prometheus, Series
from tritonkit.repository.report.charts import Line

__all__ = ["MOST_LINES", "Chosen", "Shown", "View", "look"]

MOST_LINES = 8
"""Most lines in one plot; the others are counted."""
_POINTS = 180
"""Largest number of points in a line."""
_SCRAPES = 4
"""Scrapes in the span of a rate: with fewer, a failed scrape leaves a gap."""
_UNKNOWN_SCRAPE_S = 60.0
_NAME = re.compile(r"[\w.:/-]+")


@dataclass(frozen=True)
class Chosen:
    """The selection of a look: the last seconds, and models and replicas (all if none is named).

    Raises:
        UsageError: a model's or replica's name is not valid.
    """

    range_s: float = 900.0
    models: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (*self.models, *self.replicas):
            if not _NAME.fullmatch(name):
                raise UsageError(
                    "tritonkit dash", found=repr(name), wanted="the name of a model, or HOST:PORT of a replica"
                )

    def filled(self, query: str, window_s: float) -> str:
        """A query with its variables replaced."""
        for name, values in (("$model", self.models), ("$instance", self.replicas)):
            query = query.replace(name, "|".join(map(_literally, values)) or ".*")
        return query.replace("$window", f"{window_s:.0f}s")


@dataclass(frozen=True)
class Shown:
    """A panel with its lines, x in seconds since the epoch; or the reason why it has none."""

    panel: Panel
    lines: tuple[Line, ...]
    more: int
    """Number of lines that are left out."""
    empty: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        facts = {"title": self.panel.title, "unit": self.panel.unit.text, "source": self.panel.source}
        lines = [{"name": line.name, "points": line.points} for line in self.lines]
        return facts | {"empty": self.empty, "lines": lines, "lines_left_out": self.more}


@dataclass(frozen=True)
class View:
    """All panels at one moment.

    Attributes:
        at_s: the moment, in seconds since the epoch.
        window_s: the span of rates, in seconds.
        shown: the panels, by the title of their section.
        firing: the alerts that fire.
    """

    source: str
    at_s: float
    chosen: Chosen
    window_s: float
    shown: dict[str, list[Shown]]
    firing: list[Firing]

    @property
    def drawn(self) -> dict[str, list[Shown]]:
        """Sections to draw; optional ones only if they have data."""
        optional = {section.title for section in SECTIONS if section.optional}
        return {
            title: shown
            for title, shown in self.shown.items()
            if title not in optional or any(panel.lines for panel in shown)
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: alerts, and panels by name; points are (seconds since the epoch, value or null)."""
        panels = {panel.panel.name: panel.to_dict() for shown in self.shown.values() for panel in shown}
        return {
            "prometheus": self.source,
            "at_s": self.at_s,
            "window_s": self.window_s,
            "firing": [asdict(alert) for alert in self.firing],
            "panels": panels,
        }


def look(source: Prometheus, chosen: Chosen, scrape_s: float | None = None) -> View:
    """Query everything now.

    Args:
        scrape_s: the scrape interval in seconds, if it is known.

    Raises:
        ClientError: Prometheus does not answer, or refuses.
    """
    at_s = time.time()
    step_s = max(1.0, chosen.range_s / _POINTS)
    scrape_s = scrape_s or source.scrape_interval_s() or _UNKNOWN_SCRAPE_S
    window_s = max(_SCRAPES * scrape_s, step_s)
    jobs = source.jobs()

    def shown(panel: Panel) -> Shown:
        lines = [
            Line(_named(query.legend, series), series.points)
            for query in panel.queries
            for series in source.range(chosen.filled(query.expr, window_s), at_s - chosen.range_s, at_s, step_s)
            if any(value is not None for _, value in series.points)
        ]
        kept = _largest(lines)
        return Shown(panel, kept, len(lines) - len(kept), "" if kept else _reason(panel, jobs))

    panels = {section.title: list(map(shown, section.panels)) for section in SECTIONS}
    return View(source.url, at_s, chosen, window_s, panels, source.firing())


def _literally(name: str) -> str:
    return name.replace(".", "[.]")


def _named(legend: str, series: Series) -> str:
    return re.sub(r"{{(\w+)}}", lambda label: series.labels.get(label[1], ""), legend).strip() or "all"


def _largest(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines with the highest means, as many as a plot can take, in their order."""

    def mean(line: Line) -> float:
        values = [value for _, value in line.points if value is not None]
        return sum(values) / len(values)

    kept = sorted(lines, key=mean, reverse=True)[:MOST_LINES]
    return tuple(line for line in lines if line in kept)


def _reason(panel: Panel, jobs: set[str]) -> str:
    """The reason why a panel has no line."""
    if panel.need is Need.gateway:
        there = GATEWAY_JOB in jobs
        return "the gateway has counted nothing of it in this time" if there else str(panel.need)
    return str(panel.need if TRITON_JOB in jobs else Need.scraped)
