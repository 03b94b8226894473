"""Quality against latency: every variant, the front of those that pass, and the gate's lower limits.

Points are numbered from the fastest on, and the page names them in a list next to the plot: a number finds room where a
name of 25 characters does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from tritonkit.repository.report.scale import Axis, linear_axis, log_axis

__all__ = ["Box", "Dot", "GateLine", "Kind", "Mark", "Scatter", "scatter"]

Kind: TypeAlias = Literal["front", "passed", "refused"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 14.0, 46.0
_OUTLIER = 4.0
"""Refused points that lie lower than this many times the height of all others are drawn at the edge."""
_RADIUS, _RING = 6.0, 10.0  # room that a mark takes, and one with a ring around it
_CHARACTER, _LINE = 7.2, 13.0  # width of a character and height of a text of 12 px, generous


@dataclass(frozen=True)
class Dot:
    """One variant: milliseconds for one item, and its metric."""

    name: str
    ms: float
    quality: float
    kind: Kind
    served: bool = False


@dataclass(frozen=True)
class GateLine:
    """The lowest quality that the gate accepts, and its name."""

    quality: float
    text: str


@dataclass(frozen=True)
class Box:
    """A rectangle, with y downwards, and the text for which it has room."""

    left: float
    top: float
    right: float
    bottom: float
    text: str = ""

    def overlaps(self, other: Box) -> bool:
        """Whether the two share any area."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def contains(self, other: Box) -> bool:
        """Whether the other one lies completely inside this one."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


@dataclass(frozen=True)
class Mark:
    """A point with its position; with `below` it lies under the plot and is drawn at the plot's lower edge."""

    point: Dot
    x: float
    y: float
    below: bool
    label: Box


@dataclass(frozen=True)
class Scatter:
    """A plot of `width` x `height` pixels, ready to be written as SVG."""

    width: float
    height: float
    area: Box
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    """Marks from the fastest on, numbered in that order."""
    front: str
    """Corners of the front's steps, as the attribute `points` of a polyline."""
    limits: tuple[tuple[float, Box], ...]
    """Height of each limit in the plot, and its name."""
    hidden: tuple[GateLine, ...]
    """Limits that lie too far away to be shown."""


def scatter(points: Sequence[Dot], limits: Sequence[GateLine], width: float) -> Scatter:
    """Lay out the plot of at least one point."""
    height = max(300.0, min(width * 0.62, 460.0))
    area = Box(_LEFT, _TOP, width - _RIGHT, height - _BOTTOM)
    ordered = sorted(points, key=lambda point: point.ms)
    floor = _floor(ordered)
    shown = [limit for limit in limits if _is_near(limit, ordered, floor)]
    values = [max(p.quality, floor) for p in ordered] + [limit.quality for limit in shown]
    x = log_axis(ordered[0].ms, ordered[-1].ms, area.left, area.right)
    y = linear_axis(min(values), max(values), area.bottom, area.top)
    places = [(x.at(p.ms), area.bottom - 9 if p.quality < floor else y.at(p.quality)) for p in ordered]
    radii = [_RING if point.served else _RADIUS for point in ordered]
    taken = [Box(px - r, py - r, px + r, py + r) for (px, py), r in zip(places, radii, strict=True)]
    lines = []
    for limit in shown:
        at = y.at(limit.quality)
        label = _free(_along_line(limit.text, at, area), area, taken)
        lines.append((at, label))
        taken += [label, Box(area.left, at - 1, area.right, at + 1)]
    marks = []
    for number, (point, (px, py), radius) in enumerate(zip(ordered, places, radii, strict=True), 1):
        below = point.quality < floor
        label = _free(_around(f"{number}↓" if below else str(number), px, py, radius), area, taken)
        taken.append(label)
        marks.append(Mark(point, px, py, below, label))
    hidden = tuple(limit for limit in limits if limit not in shown)
    return Scatter(width, height, area, x, y, tuple(marks), _front(marks), tuple(lines), hidden)


def _floor(points: Sequence[Dot]) -> float:
    """The lowest quality that is drawn to scale, so that a variant which lost everything does not flatten the rest."""
    passing = [p.quality for p in points if p.kind != "refused"] or [p.quality for p in points]
    low, high = min(passing), max(passing)
    least = low - _OUTLIER * max(high - low, abs(high) * 0.005)
    return min((p.quality for p in points if p.quality >= least), default=low)


def _is_near(limit: GateLine, points: Sequence[Dot], floor: float) -> bool:
    values = [max(p.quality, floor) for p in points]
    spread = max(max(values) - min(values), abs(max(values)) * 0.005)
    return min(values) - 3 * spread <= limit.quality <= max(values) + 3 * spread


def _free(places: Iterator[Box], area: Box, taken: Sequence[Box]) -> Box:
    """The first position that is inside and free, or else the first inside."""
    inside = [box for box in places if area.contains(box)]
    return next((b for b in inside if not any(b.overlaps(other) for other in taken)), inside[0])


def _around(text: str, x: float, y: float, radius: float) -> Iterator[Box]:
    """Positions for a text around a point, from near to far: next to it first, then above and below."""
    width, height = len(text) * _CHARACTER, _LINE
    for ring in range(4):
        for column, row in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1)):
            left = x + column * (radius + width / 2 + 1 + ring * width) - width / 2
            top = y + row * (radius + height / 2 + 1 + ring * height) - height / 2
            yield Box(left, top, left + width, top + height, text)


def _along_line(text: str, y: float, area: Box) -> Iterator[Box]:
    """Positions below or above the right or left end of a line across the plot."""
    width = len(text) * _CHARACTER
    for top in (y + 2, y - 2 - _LINE):
        for left in (area.right - width, area.left):
            yield Box(left, top, left + width, top + _LINE, text)


def _front(marks: Sequence[Mark]) -> str:
    """The steps from the fastest to the best: along at one quality, then up to the next."""
    ordered = [mark for mark in marks if mark.point.kind == "front"]
    corners = [(m.x, m.y) for m in ordered[:1]]
    for before, after in pairwise(ordered):
        corners += [(after.x, before.y), (after.x, after.y)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
