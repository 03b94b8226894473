"""Where the names of points go in a plot, so that each can be read and none covers another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Box", "Label", "place_labels"]

_CHARACTER = 0.6  # mean width over height in a sans-serif font, generous
_GAP = 3.0
_STEP_X, _STEP_Y = 12.0, 8.0
_LEADER = 14.0  # a name farther from its point than this gets a line to it
_CROSSED = 400.0  # as bad as being so much farther away
_PASSED = 200.0  # for each point that the line to a name runs over
_TAKEN_FOR_ANOTHERS = 40.0
_LIKED = 6.0  # straight beside, above or below is worth so much distance


@dataclass(frozen=True)
class Box:
    """A rectangle, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def center(self) -> tuple[float, float]:
        """Its middle."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def meets(self, other: Box) -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Its point that is closest to another."""
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)

    def crossed_by(self, start: tuple[float, float], end: tuple[float, float]) -> bool:
        """Whether a straight line runs through it (Liang and Barsky 1984)."""
        (x, y), (dx, dy) = start, (end[0] - start[0], end[1] - start[1])
        enter, leave = 0.0, 1.0
        for step, room in (
            (-dx, x - self.left), (dx, self.right - x), (-dy, y - self.top), (dy, self.bottom - y)
        ):  # fmt: skip
            if step == 0:
                if room < 0:
                    return False
            elif step < 0:
                enter = max(enter, room / step)
            else:
                leave = min(leave, room / step)
        return enter < leave


@dataclass(frozen=True)
class Label:
    """A name at the left end of its baseline; `leader` is a line (x1, y1, x2, y2) to a far point."""

    text: str
    x: float
    y: float
    box: Box
    leader: tuple[float, float, float, float] | None = None


def place_labels(
    points: Sequence[tuple[str, float, float]], room: Box, size: float, taken: Sequence[Box] = ()
) -> tuple[Label, ...]:
    """Give each named point (name, x, y) the free place nearest to it; order decides who goes first.

    Args:
        room: all names stay inside.
        size: of the font.
        taken: what names must not cover besides each other and the points.
    """
    dots = [Box(x - 8, y - 8, x + 8, y + 8) for _, x, y in points]
    placed: list[Label] = []
    for name, x, y in points:
        width, height = len(name) * size * _CHARACTER + 4, size * 1.25
        box = _best(x, y, width, height, room, dots, taken, placed)
        placed.append(_label(name, x, y, box, size, dots))
    return tuple(placed)


def _best(
    x: float, y: float, width: float, height: float, room: Box, dots: Sequence[Box],
    taken: Sequence[Box], placed: Sequence[Label],
) -> Box:  # fmt: skip
    """The nearest box that meets nothing and whose line crosses no name; any, if there is none."""
    obstacles = [*dots, *taken, *(label.box for label in placed)]
    best, least = Box(room.left, room.top, room.left + width, room.top + height), math.inf
    for cost, box in _candidates(x, y, width, height, room):
        if cost >= least:
            break
        if any(box.meets(other) for other in obstacles):
            continue
        cost += _TAKEN_FOR_ANOTHERS * _is_nearer_another(box, x, y, dots)
        cost += _CROSSED * _crossings(box, x, y, placed) + _PASSED * _dots_passed(box, x, y, dots)
        if cost < least:
            best, least = box, cost
    return best


def _crossings(box: Box, x: float, y: float, placed: Sequence[Label]) -> int:
    """Names that the line to a box would cross, and lines that the box would cover."""
    nearest = box.nearest(x, y)
    return sum(
        label.box.crossed_by((x, y), nearest)
        or (label.leader is not None and box.crossed_by(label.leader[:2], label.leader[2:]))
        for label in placed
    )


def _dots_passed(box: Box, x: float, y: float, dots: Sequence[Box]) -> int:
    """Other points that the line to a box would run over."""
    nearest = box.nearest(x, y)
    return sum(
        math.dist(dot.center, (x, y)) > 1 and dot.crossed_by((x, y), nearest) for dot in dots
    )


def _candidates(
    x: float, y: float, width: float, height: float, room: Box
) -> list[tuple[float, Box]]:
    """Around the point, and a grid over the whole room, nearest first, each with its distance."""
    gap = 8 + _GAP
    starts = [
        (x + gap, y - height / 2), (x - gap - width, y - height / 2),
        (x - width / 2, y - gap - height), (x - width / 2, y + gap),
        (x, y - gap - height), (x - width, y - gap - height), (x, y + gap), (x - width, y + gap),
    ]  # fmt: skip
    columns = int((room.right - room.left - width) // _STEP_X)
    rows = int((room.bottom - room.top - height) // _STEP_Y)
    starts += [
        (room.left + column * _STEP_X, room.top + row * _STEP_Y)
        for column in range(columns + 1)
        for row in range(rows + 1)
    ]
    boxes = [Box(left, top, left + width, top + height) for left, top in starts]
    inside = [
        (math.dist((x, y), box.nearest(x, y)) - (_LIKED if place < 8 else 0), box)
        for place, box in enumerate(boxes)
        if room.left <= box.left and box.right <= room.right
        and room.top <= box.top and box.bottom <= room.bottom
    ]  # fmt: skip
    return sorted(inside, key=lambda pair: pair[0])


def _is_nearer_another(box: Box, x: float, y: float, dots: Sequence[Box]) -> bool:
    """Whether a name there would be read as that of another point."""
    own = math.dist((x, y), box.nearest(x, y))
    for dot in dots:
        gap = math.dist(dot.center, box.nearest(*dot.center))
        if gap <= own + 2 and math.dist(dot.center, (x, y)) > 1:
            return True
    return False


def _label(name: str, x: float, y: float, box: Box, size: float, dots: Sequence[Box]) -> Label:
    nearest = box.nearest(x, y)
    far = math.dist((x, y), nearest) > _LEADER or _is_nearer_another(box, x, y, dots)
    return Label(
        name,
        box.left + 2,
        box.bottom - size * 0.35,
        box,
        (x, y, *nearest) if far else None,
    )
