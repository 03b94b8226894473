"""Axes: the numbers on them, their positions and their texts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["Axis", "linear_axis", "log_axis"]

_MOST_TICKS = 8
_EQUAL = 1e-9  # numbers closer than this share one position
_MANTISSAS: tuple[tuple[float, ...], ...] = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))


@dataclass(frozen=True)
class Axis:
    """Numbers from `low` to `high` along pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool
    ticks: tuple[tuple[float, str], ...] = ()
    """Pixel and text of each number."""

    def at(self, value: float) -> float:
        """The pixel of a number."""
        low, high, value = ((math.log(v) if self.logarithmic else v) for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def log_axis(low: float, high: float, start: float, end: float) -> Axis:
    """A scale from slightly below `low` to slightly above `high`, both above 0."""
    room = max(math.log(high / low) * 0.07, math.log(1.15))
    axis = Axis(low / math.exp(room), high * math.exp(room), start, end, True)
    inside: list[float] = []
    for mantissas in _MANTISSAS:
        ticks = _mantissa_ticks(axis, mantissas)
        if len(ticks) <= _MOST_TICKS:
            inside = ticks
        if len(inside) >= 4:
            break
    if len(inside) < 3:
        return _with_ticks(axis, _linear_ticks(axis.low, axis.high))
    return _with_ticks(axis, [(value, f"{value:g}") for value in inside])


def linear_axis(low: float, high: float, start: float, end: float) -> Axis:
    """A scale from slightly below `low` to well above `high`, where names need room."""
    equal = high - low <= max(abs(high), 1.0) * _EQUAL
    room = (abs(high) * 0.003 or 1.0) if equal else (high - low) * 0.08
    axis = Axis(low - room, high + 2 * room, start, end, False)
    return _with_ticks(axis, _linear_ticks(axis.low, axis.high))


def _with_ticks(axis: Axis, ticks: list[tuple[float, str]]) -> Axis:
    placed = tuple((axis.at(value), text) for value, text in ticks)
    return replace(axis, ticks=placed)


def _mantissa_ticks(axis: Axis, mantissas: tuple[float, ...]) -> list[float]:
    powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    values = [mantissa * 10.0**power for power in powers for mantissa in mantissas]
    return [value for value in values if axis.low <= value <= axis.high]


def _linear_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round numbers, three to seven, all with the same number of digits."""
    rough = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [(index * step, f"{index * step:.{digits}f}") for index in range(first, last + 1)]
