"""A plan as one HTML page: replicas and cost, a day of scaling, rules side by side, cost against target."""

from __future__ import annotations

from pathlib import Path

import tritonkit
from tritonkit.perf.plan.fleet_plan import Plan
from tritonkit.perf.plan.price import count_text
from tritonkit.perf.plan.scaling import Day
from tritonkit.repository.report.charts import Line, Lines, lines
from tritonkit.repository.report.page import environment

__all__ = ["page"]

_WIDTH = 900.0
_EVERY = 3
"""Minutes of a day for each point of its lines."""


def page(plan: Plan, written: str, *, command: str) -> str:
    """The page: text that needs no other file and no address to be shown.

    Args:
        written: the date and time, as readable text. command: the command that repeats the plan.
    """
    template = environment(Path(__file__).parent / "templates").get_template("plan.html.j2")
    percent, target_ms = plan.demand.slo.tightest
    return template.render(
        plan=plan,
        written=written,
        command=command,
        version=tritonkit.__version__,
        percent=percent,
        target_ms=target_ms,
        day=plan.days[0],
        price=plan.demand.price,
        by_target=_by_target(plan),
        replicas=_replicas(plan.days[0]),
        rates=_rates(plan.days[0]),
        tails=_tails(plan.days[0], target_ms),
        count=count_text,
    )


def _by_target(plan: Plan) -> Lines | None:
    """Cost, or replicas where there is no price, over the target in milliseconds."""

    def cost(count: int | None) -> float | None:
        if count is None or plan.demand.price is None:
            return count
        return plan.per_million(count)

    curves = [Line("as now", [(ms, cost(now)) for ms, now, _ in plan.costs_by_target])]
    if plan.best != plan.point:
        curves.append(Line("best way", [(ms, cost(best)) for ms, _, best in plan.costs_by_target]))
    return lines(curves, width=_WIDTH, height=280)


def _replicas(day: Day) -> Lines | None:
    minutes = day.minutes[::_EVERY]
    return lines(
        [
            Line("answer", [(m.at_s / 3600, m.ready) for m in minutes]),
            Line("needed", [(m.at_s / 3600, m.needed) for m in minutes]),
        ],
        width=_WIDTH,
        height=240,
    )


def _rates(day: Day) -> Lines | None:
    points = [(m.at_s / 3600, m.rate_per_s) for m in day.minutes[::_EVERY]]
    return lines([Line("requests/s", points)], width=_WIDTH, height=180)


def _tails(day: Day, target_ms: float) -> Lines | None:
    """The worst of each stretch, so that no peak is left out."""
    points = []
    for first in range(0, len(day.minutes), _EVERY):
        stretch = day.minutes[first : first + _EVERY]
        points.append((stretch[0].at_s / 3600, max(m.tail_ms for m in stretch)))
    return lines(
        [Line("worst", points)],
        width=_WIDTH,
        height=220,
        logarithmic=True,
        limits=[(target_ms, f"target {target_ms:g} ms")],
    )
