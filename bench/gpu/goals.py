"""Figures of `make gpu` against its goals. Standard library only.

Each goal is a ratio of two figures of one card in one run, round by round; the median is judged.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["EAGER", "GOALS", "Goal", "Judged", "Row", "judge", "unreached"]

Row = Mapping[str, Any]
FP16, ENCODER, EAGER = "resnet50_fp16", "encoder_fp16", "resnet50_eager"


@dataclass(frozen=True)
class Goal:
    """One goal.

    Args:
        title: the two things that are compared.
        bar: the limit of the median.
        at_least: whether the bar is the least, or else the most.
        rounds: a function that takes the rows of one round, and gives the figure or None.
        unit: the figure's; "" for a ratio.
    """

    title: str
    bar: float
    at_least: bool
    rounds: Callable[[Sequence[Row]], float | None]
    unit: str = ""


@dataclass(frozen=True)
class Judged:
    """A goal with its figures, one for each round that has both sides."""

    goal: Goal
    figures: Sequence[float]

    @property
    def reached(self) -> bool | None:
        """Whether the median keeps the bar; None where nothing was measured."""
        if not self.figures:
            return None
        median = statistics.median(self.figures)
        return median >= self.goal.bar if self.goal.at_least else median <= self.goal.bar


def _picked(rows: Iterable[Row], what: str, model: str, **fields: Any) -> list[Row]:
    """The rows without an error that have these fields."""
    fields |= {"what": what, "model": model}
    return [row for row in rows if "error" not in row and all(row.get(key) == value for key, value in fields.items())]


def _mean(rows: Sequence[Row], key: str) -> float | None:
    return statistics.fmean(row[key] for row in rows) if rows else None


def _over(dividend: float | None, divisor: float | None) -> float | None:
    return dividend / divisor if dividend is not None and divisor else None


def _loaded(rows: Sequence[Row], model: str, way: str) -> list[Row]:
    return [row for row in _picked(rows, "served", model, way=way) if row["callers"] > 1]


def _engine(rows: Sequence[Row], model: str) -> float | None:
    """Items per second of the engine at its largest batch of the round."""
    alone = _picked(rows, "engine", model, copies=False)
    most = max((row["batch"] for row in alone), default=0)
    return _mean([row for row in alone if row["batch"] == most], "per_s")


def _of_engine(model: str, way: str) -> Callable[[Sequence[Row]], float | None]:
    return lambda rows: _over(_mean(_loaded(rows, model, way), "per_s"), _engine(rows, model))


def _single(way: str) -> Callable[[Sequence[Row]], float | None]:
    """Milliseconds of one caller above the engine's with the same copies."""

    def above(rows: Sequence[Row]) -> float | None:
        served = _mean(_picked(rows, "served", FP16, way=way, callers=1), "p50_ms")
        alone = _mean(_picked(rows, "engine", FP16, batch=1, copies=True), "ms")
        return None if served is None or alone is None else served - alone

    return above


def _tail(rows: Sequence[Row]) -> float | None:
    paced = _picked(rows, "paced", FP16)
    return _over(_mean(paced, "p99_ms"), _mean(paced, "p50_ms"))


def _seeds(rows: Sequence[Row]) -> float | None:
    """The best variant at load over eager FP32 for one caller: ResNet-50 both."""
    best = [
        row["per_s"]
        for row in rows
        if row["what"] == "served" and "error" not in row and row["model"].startswith("resnet50") and row["callers"] > 1
    ]
    return _over(max(best) if best else None, _mean(_picked(rows, "served", EAGER, callers=1), "per_s"))


def _busy(rows: Sequence[Row]) -> float | None:
    """Utilization of the GPU where over 1,000 requests/s have a p95 below 50 ms."""
    loads = [row for way in ("grpc", "system") for row in _loaded(rows, FP16, way)]
    busy = [row["gpu"] for row in loads if row["gpu"] is not None and row["per_s"] > 1000 and row["p95_ms"] < 50]
    return max(busy) if busy else None


GOALS = (
    Goal("ResNet-50 FP16 by gRPC / the engine in process", 0.85, True, _of_engine(FP16, "grpc")),
    Goal("ResNet-50 FP16 by shared memory / the engine in process", 0.95, True, _of_engine(FP16, "system")),
    Goal("one caller by shared memory: p50 above the engine from and to numpy", 0.3, False, _single("system"), "ms"),
    Goal("texts of 7 to 130 tokens / the engine at equal padded batches", 0.80, True, _of_engine(ENCODER, "grpc")),
    Goal("at 80 % of the highest rate: p99 / p50", 2.0, False, _tail),
    Goal("the best ResNet-50 at load / eager PyTorch FP32 served to one caller", 100.0, True, _seeds),
    Goal("utilization at over 1,000 requests/s with a p95 below 50 ms", 0.70, True, _busy),
)


def judge(rows: Sequence[Row]) -> list[Judged]:
    """Each goal with its figures."""
    numbers = sorted({row["round"] for row in rows})
    rounds = [[row for row in rows if row["round"] == number] for number in numbers]
    return [
        Judged(goal, [figure for part in rounds if (figure := goal.rounds(part)) is not None and figure == figure])
        for goal in GOALS
    ]


def unreached(rows: Sequence[Row]) -> list[str]:
    """The titles of the goals that were measured and not reached, or not measured."""
    return [judged.goal.title for judged in judge(rows) if not judged.reached]
