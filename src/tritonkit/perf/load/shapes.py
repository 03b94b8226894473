"""The load at each point of a run: users, or requests a second."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SHAPES", "users_at"]

_STEPS = 4
_RAMP = 0.8  # of the run; the rest is for a look at the full load
_CALM = 0.1  # of all, before and after a spike
_NIGHT = 0.2  # of the day's most
_SPIKE = (0.4, 0.6)  # of the run


def _spike(done: float) -> float:
    return 1.0 if _SPIKE[0] <= done < _SPIKE[1] else _CALM


def _daily(done: float) -> float:
    """A day from midnight on: least at four in the morning, most at four in the afternoon."""
    hour = done * 24
    wave = (1 - math.cos(2 * math.pi * (hour - 4) / 24)) / 2
    return _NIGHT + (1 - _NIGHT) * wave


def _step(done: float) -> float:
    return (math.floor(done * _STEPS) + 1) / _STEPS


SHAPES: dict[str, Callable[[float], float]] = {
    "steady": lambda _: 1.0,
    "ramp": lambda done: min(1.0, done / _RAMP),
    "spike": _spike,
    "step": _step,
    "daily": _daily,
}
"""The share of the most load at each point of a run, which goes from 0 to 1:

steady: all of it from start to end.
ramp: from one user to all of it, in a straight line over four fifths of the run.
spike: a tenth, but all of it in the fifth in the middle.
step: a quarter, a half, three quarters, all.
daily: a day in the time of the run: a fifth at four in the morning, all of it at four in the afternoon.
"""


def users_at(shape: str, second: float, users: int, duration_s: float | None) -> int | None:
    """The number of users, at least 1; None when the run is over.

    Args:
        shape: a key of `SHAPES`.
        second: seconds since the run began.
        users: the largest number.
        duration_s: seconds of the run; None means without end, which only `steady` allows.
    """
    if duration_s is None:
        return users
    if second >= duration_s:
        return None
    return max(1, math.floor(SHAPES[shape](second / duration_s) * users + 0.5))
