"""The rate over a day: a shape, or a file."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tritonkit.errors import UsageError
from tritonkit.perf.load.shapes import SHAPES
from tritonkit.text import is_number

__all__ = ["DAY_S", "STEP_S", "Traffic", "of_shape", "read_traffic"]

DAY_S, STEP_S = 86_400.0, 5.0
_NOISE, _NOISE_KEPT = 0.05, 0.9
"""Minute-to-minute changes: standard deviation of their logarithm, and the share that lasts to the next minute."""
_WANTED = "lines of seconds since midnight and requests a second, such as 3600,120"


@dataclass(frozen=True)
class Traffic:
    """A day's rate.

    Args:
        name: a readable name.
        rates_per_s: float64 [n], in steps of `STEP_S`.
    """

    name: str
    rates_per_s: NDArray[np.float64]

    @property
    def most_per_s(self) -> float:
        """The highest rate."""
        return float(self.rates_per_s.max())

    @property
    def mean_per_s(self) -> float:
        """The mean rate."""
        return float(self.rates_per_s.mean())


def of_shape(shape: str, most_per_s: float, *, noisy: bool = True, seed: int = 0) -> Traffic:
    """A day in this shape, with its highest rate.

    Args:
        shape: a key of `tritonkit.perf.load.shapes.SHAPES`.
        noisy: whether it also changes from minute to minute.
    """
    count = int(DAY_S / STEP_S)
    shares = np.array([SHAPES[shape]((k + 0.5) / count) for k in range(count)])
    if noisy:
        shares = shares * _noise(count, seed)
    return Traffic(shape, most_per_s * shares / shares.max())


def _noise(count: int, seed: int) -> NDArray[np.float64]:
    """Factors that last for a minute or a few."""
    rng = np.random.default_rng(seed)
    minutes = math.ceil(count * STEP_S / 60) + 1
    level, levels = 0.0, []
    for drawn in rng.normal(0.0, _NOISE * math.sqrt(1 - _NOISE_KEPT**2), minutes):
        level = _NOISE_KEPT * level + float(drawn)
        levels.append(level)
    at = np.arange(count) * STEP_S / 60
    return np.exp(np.interp(at, np.arange(minutes), levels))


def read_traffic(file: Path, most_per_s: float) -> Traffic:
    """A recorded day, scaled to this highest rate: a CSV file of seconds since midnight and a rate; a first line may
    name the columns. The rate is interpolated between its lines.

    Raises:
        UsageError: it cannot be read, or a line is something else.
    """
    where = f"--traffic {file}"
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = [(n, row) for n, row in enumerate(csv.reader(lines), 1) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(where, found=f"it cannot be read: {reason}") from None
    if rows and not is_number(rows[0][1][0]):
        rows = rows[1:]
    points = [_point(file, number, row) for number, row in rows]
    for (at, _), (after, _), (number, _) in zip(points, points[1:], rows[1:], strict=False):
        if after <= at:
            raise UsageError(f"{file}:{number}", found=f"{after:g} s after {at:g} s", wanted="ascending times")
    if not points or not any(rate for _, rate in points):
        raise UsageError(where, found="no rate above 0", wanted=_WANTED)
    times, rates = zip(*points, strict=True)
    steps = (np.arange(int(DAY_S / STEP_S)) + 0.5) * STEP_S
    day = np.interp(steps, times, rates)
    return Traffic(file.name, most_per_s * day / day.max())


def _point(file: Path, number: int, row: Sequence[str]) -> tuple[float, float]:
    texts = [text.strip() for text in row[:2]]
    if len(texts) < 2 or not all(map(is_number, texts)):
        raise UsageError(f"{file}:{number}", found=repr(",".join(row)), wanted=_WANTED)
    at, rate = map(float, texts)
    if not (0 <= at <= DAY_S and 0 <= rate < math.inf):
        raise UsageError(f"{file}:{number}", found=repr(",".join(row)), wanted=_WANTED)
    return at, rate
