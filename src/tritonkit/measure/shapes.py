"""How many users there are at each second of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SHAPES", "users_at"]

_STEPS = 4
_RAMP = 0.8  # of the run; the rest is for a look at the full load
_CALM = 0.1  # of all users, before and after a spike
_SPIKE = (0.4, 0.6)  # of the run


def _spike(done: float) -> float:
    return 1.0 if _SPIKE[0] <= done < _SPIKE[1] else _CALM


def _step(done: float) -> float:
    return (math.floor(done * _STEPS) + 1) / _STEPS


SHAPES: dict[str, Callable[[float], float]] = {
    "steady": lambda _: 1.0,
    "ramp": lambda done: min(1.0, done / _RAMP),
    "spike": _spike,
    "step": _step,
}
"""The share of all users at each point of a run, which goes from 0 to 1:

steady: all of them from start to end.
ramp: from one user to all of them, in a straight line over four fifths of the run.
spike: a tenth, but all of them in the fifth in the middle.
step: a quarter, a half, three quarters, all.
"""


def users_at(shape: str, second: float, users: int, duration_s: float | None) -> int | None:
    """How many users there should be, at least 1; None when the run is over.

    Args:
        shape: a key of `SHAPES`.
        second: since the run began.
        users: the most there will be.
        duration_s: how long the run lasts; None is for ever, which only steady can be.
    """
    if duration_s is None:
        return users
    if second >= duration_s:
        return None
    return max(1, math.floor(SHAPES[shape](second / duration_s) * users + 0.5))
