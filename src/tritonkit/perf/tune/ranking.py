"""The order in which a search tries points, and the correction of predictions by measurements; pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tritonkit.perf.load.openloop.find_rate import RateTrial
from tritonkit.perf.tune.outcome import Evaluation
from tritonkit.perf.tune.space import InstanceGroup, Point

__all__ = ["candidates", "correction", "tail_ms"]

_SAME = 0.02
"""Points count as equal when their predictions differ by less than this share."""


def candidates(predicted: Mapping[Point, float]) -> list[Point]:
    """Points by their predictions, best first; the simplest of those that count as equal."""
    ordered = sorted(
        (point for point, rate in predicted.items() if rate),
        key=lambda p: (-predicted[p], p.delay_us, len(p.preferred), p),
    )
    kept: list[Point] = []
    for point in ordered:
        limit = predicted[point] * (1 + _SAME)
        if not any(other.group == point.group and predicted[other] <= limit for other in kept):
            kept.append(point)
    # One point of each group goes first: the model knows least of the groups' costs.
    firsts = {point.group: point for point in reversed(kept)}
    return [*sorted(firsts.values(), key=kept.index), *kept]


def correction(evaluations: Sequence[Evaluation], group: InstanceGroup) -> float:
    """The median of measured over predicted rates, of this group, or of all groups if it was not measured."""

    def ratios(chosen: Sequence[Evaluation]) -> list[float]:
        return [e.rate_per_s / e.predicted for e in chosen if e.rate_per_s and e.predicted]

    measured = ratios([e for e in evaluations if e.point.group == group]) or ratios(evaluations)
    return float(np.median(measured)) if measured else 1.0


def tail_ms(trials: Sequence[RateTrial], rate: float) -> float | None:
    """The largest tail of the trials that held at this rate."""
    tails = [t.tail_ms for t in trials if t.holds and t.rate_per_s == rate and t.tail_ms is not None]
    return max(tails, default=None)
