"""The moments at which requests are sent; they are drawn before a run begins, so no server can delay them.

Gaps between arrivals are drawn at a mean of one and then stretched along the integral of the rate (the
time-rescaling theorem): so any shape of the rate goes with any kind of gap.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tritonkit.errors import UsageError
from tritonkit.perf.load.shapes import SHAPES
from tritonkit.text import is_number

__all__ = ["KINDS", "Arrivals", "Kind", "Moments", "draw", "mean_share", "read_trace"]

Kind: TypeAlias = Literal["poisson", "constant", "bursty"]
KINDS: tuple[str, ...] = get_args(Kind)

Moments: TypeAlias = NDArray[np.float64]
"""Seconds since the start of a run, ascending."""

_GRID = 10_000
"""Points at which the rate is added up; between them it is a straight line."""
_LATEST_START_S = 3600.0
_MOST = 50_000_000
"""The most arrivals of one run: beyond that its moments alone would fill the memory."""


@dataclass(frozen=True)
class Arrivals:
    """The arrival process of requests.

    Args:
        kind: `poisson`: independent, as from many callers; `constant`: at equal gaps;
            `bursty`: gaps of a gamma distribution, so that many come together and then none for a while.
        cv: coefficient of variation of bursty gaps: 1 is Poisson, 4 bursts. arXiv:2604.20420 has such load.
        shape: a key of `SHAPES`: the share of the rate at each point of the run.
        seed: the same seed gives the same moments.
    """

    kind: Kind = "poisson"
    cv: float = 1.0
    shape: str = "steady"
    seed: int = 0


def draw(arrivals: Arrivals, rate_per_s: float, duration_s: float) -> Moments:
    """The moments of a run at this rate, or its highest where the shape changes it.

    Raises:
        UsageError: more arrivals than fit into memory.
    """
    expected = rate_per_s * duration_s * mean_share(arrivals.shape)
    if expected > _MOST:
        raise UsageError(
            f"a rate of {rate_per_s:g}/s for {duration_s:g} s",
            found=f"{expected:.3g} requests",
            wanted=f"at most {_MOST:,} in one run",
            todo="a shorter --duration",
        )
    times = (np.arange(_GRID + 1)) / _GRID
    shares = np.array([SHAPES[arrivals.shape](done) for done in (times[:-1] + times[1:]) / 2])
    passed = np.concatenate([[0.0], np.cumsum(shares)]) * rate_per_s * duration_s / _GRID
    gaps = _gaps(arrivals, float(passed[-1]))
    moments: Moments = np.interp(gaps[gaps < passed[-1]], passed, times * duration_s)
    return moments


def mean_share(shape: str) -> float:
    """The mean of a shape over a run, 0 to 1."""
    return float(np.mean([SHAPES[shape]((k + 0.5) / _GRID) for k in range(_GRID)]))


def _gaps(arrivals: Arrivals, length: float) -> Moments:
    """Arrivals at a mean gap of one, from 0 to at least `length`."""
    if arrivals.kind == "constant":
        return np.arange(0.5, math.ceil(length), 1.0)
    rng = np.random.default_rng(arrivals.seed)
    shape = 1.0 if arrivals.kind == "poisson" else 1 / arrivals.cv**2
    moments = np.zeros(0)
    while not moments.size or moments[-1] < length:
        left = length - (moments[-1] if moments.size else 0.0)
        more = rng.gamma(shape, 1 / shape, math.ceil(left * 1.1) + 100)
        start = moments[-1] if moments.size else 0.0
        moments = np.concatenate([moments, start + np.cumsum(more)])
    return moments


def read_trace(file: Path) -> Moments:
    """Recorded moments: a CSV file whose first column has seconds, ascending; a first line may name it.

    Raises:
        UsageError: the file cannot be read, or a line has no number, or one lower than the line above it.
    """
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            moments = list(_moments(file, csv.reader(lines)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--arrivals {file}", found=f"it cannot be read: {reason}") from None
    if not moments:
        raise UsageError(f"--arrivals {file}", found="no line with a time", wanted="one a request")
    if moments[0] > _LATEST_START_S:
        raise UsageError(
            f"--arrivals {file}",
            found=f"a first request after {moments[0]:g} s",
            wanted="seconds since the start of the run",
            todo="subtract the first time from all",
        )
    return np.array(moments)


def _moments(file: Path, rows: csv.Reader) -> list[float]:  # type: ignore[name-defined]
    moments: list[float] = []
    for row in rows:
        text = row[0].strip() if row else ""
        if not text or (rows.line_num == 1 and not is_number(text)):
            continue
        value = float(text) if is_number(text) else math.nan
        if not 0 <= value < math.inf or (moments and value < moments[-1]):
            raise UsageError(
                f"{file}:{rows.line_num}",
                found=repr(text),
                wanted="seconds since the start, 0 or more, none before the line above",
                todo="correct the line: the first column is when a request came",
            )
        moments.append(value)
    return moments
