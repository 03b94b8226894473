"""Quality against latency: where every variant lies, the front of those that pass, and the gate's bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from tritonkit.report.labels import Box, Label, place_labels
from tritonkit.report.scale import Axis, linear_axis, log_axis

__all__ = ["Bar", "Kind", "Mark", "Point", "Scatter", "scatter"]

Kind: TypeAlias = Literal["front", "passed", "refused"]

FONT = 12.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 14.0, 46.0
_OUTLIER = 4.0
"""Refused points farther below than so many times the height of all others are drawn at the edge."""


@dataclass(frozen=True)
class Point:
    """One variant: milliseconds for one item, and its metric."""

    name: str
    ms: float
    quality: float
    kind: Kind
    served: bool = False


@dataclass(frozen=True)
class Bar:
    """The least quality that the gate takes, and what it is called."""

    quality: float
    text: str


@dataclass(frozen=True)
class Mark:
    """A point where it is drawn; `below`: it lies under the plot, and stands at its lower edge."""

    point: Point
    x: float
    y: float
    below: bool


@dataclass(frozen=True)
class Scatter:
    """A plot of `width` x `height` pixels, ready to be written as SVG."""

    width: float
    height: float
    room: Box
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    labels: tuple[Label, ...]
    front: str
    """Corners of the front's steps, as the attribute `points` of a polyline."""
    bars: tuple[tuple[float, Label], ...]
    """Height of each bar in the plot, and its name."""
    hidden: tuple[Bar, ...]
    """Bars that lie too far below to be shown."""


def scatter(points: Sequence[Point], bars: Sequence[Bar], width: float) -> Scatter:
    """Lay out the plot of at least one point; it grows in height where there are many."""
    height = max(300.0, min(width * 0.62, 460.0), 110.0 + 26.0 * len(points) * min(1, 500 / width))
    room = Box(_LEFT, _TOP, width - _RIGHT, height - _BOTTOM)
    floor = _floor(points)
    shown = [bar for bar in bars if _is_near(bar, points, floor)]
    values = [max(p.quality, floor) for p in points] + [bar.quality for bar in shown]
    x = log_axis(min(p.ms for p in points), max(p.ms for p in points), room.left, room.right)
    y = linear_axis(min(values), max(values), room.bottom, room.top)
    marks = tuple(
        Mark(p, x.at(p.ms), room.bottom - 9 if p.quality < floor else y.at(p.quality), p.quality < floor)
        for p in points
    )  # fmt: skip
    heights = [y.at(bar.quality) for bar in shown]
    names = [_bar_label(bar, at, room, marks) for bar, at in zip(shown, heights, strict=True)]
    lines = tuple(zip(heights, names, strict=True))
    return Scatter(
        width, height, room, x, y, marks,
        _names(marks, room, lines), _front(marks), lines,
        tuple(bar for bar in bars if bar not in shown),
    )  # fmt: skip


def _floor(points: Sequence[Point]) -> float:
    """The least quality that is drawn to scale: a variant that lost everything must not flatten the rest."""
    kept = [p.quality for p in points if p.kind != "refused"] or [p.quality for p in points]
    low, high = min(kept), max(kept)
    least = low - _OUTLIER * max(high - low, abs(high) * 0.005)
    return min((p.quality for p in points if p.quality >= least), default=low)


def _is_near(bar: Bar, points: Sequence[Point], floor: float) -> bool:
    values = [max(p.quality, floor) for p in points]
    spread = max(max(values) - min(values), abs(max(values)) * 0.005)
    return min(values) - 3 * spread <= bar.quality <= max(values) + 3 * spread


def _bar_label(bar: Bar, y: float, room: Box, marks: Sequence[Mark]) -> Label:
    """Above or below the line's right or left end, where no mark is."""
    size = FONT - 1
    width = len(bar.text) * size * 0.6 + 4
    places = [
        Box(left, top, left + width, top + size * 1.25)
        for top in (y + 2, y - 2 - size * 1.25)
        for left in (room.right - width, room.left)
        if top > room.top and top + size * 1.25 < room.bottom
    ]  # fmt: skip
    dots = [Box(m.x - 8, m.y - 8, m.x + 8, m.y + 8) for m in marks]
    free = [box for box in places if not any(box.meets(dot) for dot in dots)]
    box = (free or places)[0]
    return Label(bar.text, box.left + 2, box.bottom - size * 0.35, box)


def _names(
    marks: Sequence[Mark], room: Box, lines: Sequence[tuple[float, Label]]
) -> tuple[Label, ...]:
    """The variants' names, those with the most neighbors first."""

    def neighbors(mark: Mark) -> int:
        return sum(abs(m.x - mark.x) < 90 and abs(m.y - mark.y) < 20 for m in marks)

    ordered = sorted(marks, key=neighbors, reverse=True)
    named = [(_name(mark), mark.x, mark.y) for mark in ordered]
    taken = [Box(room.left, y - 2, room.right, y + 2) for y, _ in lines]
    return place_labels(named, room, FONT, [*taken, *(label.box for _, label in lines)])


def _name(mark: Mark) -> str:
    return f"{mark.point.name} ↓ {mark.point.quality:.4g}" if mark.below else mark.point.name


def _front(marks: Sequence[Mark]) -> str:
    """From the fastest to the best: along at one quality, then up to the next."""
    ordered = sorted((m for m in marks if m.point.kind == "front"), key=lambda m: m.x)
    corners = [(m.x, m.y) for m in ordered[:1]]
    for before, after in pairwise(ordered):
        corners += [(after.x, before.y), (after.x, after.y)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
