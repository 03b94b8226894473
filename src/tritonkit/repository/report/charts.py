"""Lines over time and columns of a distribution: values in, positions in a plot out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tritonkit.repository.report.scale import Axis, log_axis

__all__ = ["Columns", "Drawn", "Line", "Lines", "Plot", "columns", "lines"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 14.0, 14.0, 42.0
_CHARACTER, _LINE = 7.0, 14.0
_MOST_TICKS = 8
_LEAST = 1e-9
"""Least length of an axis that gets round numbers."""


@dataclass(frozen=True)
class Line:
    """One line: its name, and points (x, y) in the order of x; y is None in a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Drawn:
    """A line with its positions: each part as the attribute `points` of a polyline, and its name at the end of the
    axis, or next to a single point."""

    name: str
    number: int
    parts: tuple[str, ...]
    dots: tuple[tuple[float, float], ...]
    """Points that stand alone."""
    label: tuple[float, float]


@dataclass(frozen=True)
class Plot:
    """A plot of `width` x `height` pixels with its axes, ready to be written as SVG."""

    width: float
    height: float
    left: float
    top: float
    right: float
    bottom: float
    x: Axis
    y: Axis


@dataclass(frozen=True)
class Lines(Plot):
    """Lines in their plot."""

    drawn: tuple[Drawn, ...]
    limits: tuple[tuple[float, str], ...]
    """Height and name of each limit that lies in the plot."""


def lines(
    plotted: Sequence[Line],
    *,
    width: float,
    height: float = 260.0,
    logarithmic: bool = False,
    limits: Sequence[tuple[float, str]] = (),
) -> Lines | None:
    """Lay out the plot; None without points.

    Args:
        logarithmic: whether y is logarithmic; otherwise it starts at 0.
        limits: values of y with their names.
    """
    xs = [x for line in plotted for x, y in line.points if y is not None]
    ys = [y for line in plotted for _, y in line.points if y is not None]
    if logarithmic:
        ys = [y for y in ys if y > 0]
    if not ys:
        return None
    room = max(len(line.name) for line in plotted) * _CHARACTER + 10
    left, right, top, bottom = _LEFT, width - _RIGHT - room, _TOP, height - _BOTTOM
    shown = [y for y, _ in limits if y <= 4 * max(ys) and (not logarithmic or y >= min(ys) / 4)]
    x = _from_zero(min(xs), max(xs), left, right)
    if logarithmic:
        y_axis = log_axis(min([*ys, *shown]), max([*ys, *shown]), bottom, top)
    else:
        y_axis = _from_zero(0.0, max([*ys, *shown]) * 1.05, bottom, top)
    drawn = [_drawn(k, line, x, y_axis, logarithmic) for k, line in enumerate(plotted)]
    names = tuple((y_axis.at(value), text) for value, text in limits if value in shown)
    return Lines(width, height, left, top, right, bottom, x, y_axis, _apart(drawn, right, top, bottom), names)


def _from_zero(low: float, high: float, start: float, end: float) -> Axis:
    """A scale from exactly `low` to exactly `high`, with round numbers between."""
    high = high if high - low > _LEAST else low + 1.0
    rough = (high - low) / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    axis = Axis(low, high, start, end, False)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [(axis.at(k * step), f"{k * step:.{digits}f}") for k in range(first, last + 1)]
    return Axis(low, high, start, end, False, tuple(ticks))


def _drawn(number: int, line: Line, x: Axis, y: Axis, logarithmic: bool) -> Drawn:
    parts: list[list[tuple[float, float]]] = [[]]
    for at, value in line.points:
        if value is None or (logarithmic and value <= 0):
            parts.append([])
        else:
            parts[-1].append((x.at(at), y.at(value)))
    texts = [" ".join(f"{px:.1f},{py:.1f}" for px, py in part) for part in parts if len(part) > 1]
    dots = tuple(part[0] for part in parts if len(part) == 1)
    last = next((part[-1] for part in reversed(parts) if part), (x.end, y.start))
    return Drawn(line.name, number, tuple(texts), dots, last)


def _apart(drawn: Sequence[Drawn], right: float, top: float, bottom: float) -> tuple[Drawn, ...]:
    """The names next to the plot, moved apart where lines end close together; names of single points next to them."""
    ordered = sorted((line for line in drawn if not _is_point(line)), key=lambda line: line.label[1])
    places = [max(line.label[1], top) for line in ordered]
    for k in range(1, len(places)):
        places[k] = max(places[k], places[k - 1] + _LINE)
    over = places[-1] - bottom if places else 0.0
    if over > 0:
        places[-1] -= over
        for k in range(len(places) - 2, -1, -1):
            places[k] = min(places[k], places[k + 1] - _LINE)
    at = {line.number: (right + 6, p + 4) for line, p in zip(ordered, places, strict=True)}
    at |= {e.number: (e.dots[0][0] + 8, e.dots[0][1] + 4) for e in drawn if _is_point(e)}
    return tuple(Drawn(e.name, e.number, e.parts, e.dots, at[e.number]) for e in drawn)


def _is_point(drawn: Drawn) -> bool:
    return len(drawn.dots) == 1 and not drawn.parts


@dataclass(frozen=True)
class Columns(Plot):
    """Columns over a logarithmic axis, each from left to right edge and up to its height, in pixels."""

    bars: tuple[tuple[float, float, float, str], ...]
    """Left edge, width, upper end, and text of each column."""
    limits: tuple[tuple[float, str], ...]
    """Position on the axis, and name."""


def columns(
    counts: Sequence[tuple[float, float, int]],
    unit: str,
    *,
    width: float,
    height: float = 220.0,
    limits: Sequence[tuple[float, str]] = (),
) -> Columns | None:
    """Lay out a distribution; None if all counts are 0.

    Args:
        counts: lower and upper edge, both above 0, and the number of values between them.
        unit: unit of the edges.
        limits: values on the axis with their names.
    """
    total = sum(count for _, _, count in counts)
    if not total:
        return None
    left, right, top, bottom = _LEFT, width - _RIGHT, _TOP, height - _BOTTOM
    low, high = counts[0][0], counts[-1][1]
    shown = [(value, name) for value, name in limits if low / 2 <= value <= high * 2]
    values = [low, high, *(value for value, _ in shown)]
    x = log_axis(min(values), max(values), left, right)
    y = _from_zero(0.0, 100 * max(count for _, _, count in counts) / total * 1.05, bottom, top)
    bars = tuple(
        (
            x.at(lower),
            max(x.at(upper) - x.at(lower) - 1, 0.5),
            y.at(100 * count / total),
            f"{lower:.3g} to {upper:.3g} {unit}: {count}",
        )
        for lower, upper, count in counts
        if count
    )
    names = tuple((x.at(value), name) for value, name in shown)
    return Columns(width, height, left, top, right, bottom, x, y, bars, names)
