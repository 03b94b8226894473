"""Waiting for a condition, however busy the machine is. The limit ends a test that hangs, and measures nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 90.0
"""A limit that nothing reaches, even while several processes compete for each core."""


def eventually(true: Callable[[], Any], what: str = "", within_s: float = PATIENCE_S) -> Any:
    """Wait until a condition is true; gives its value.

    Args:
        true: the condition, called some twenty times a second.
        what: the words for the failure.
        within_s: the limit, for what takes minutes.
    """
    deadline = time.monotonic() + within_s
    while not (value := true()):
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(0.05)
    return value


def standstill(value: Callable[[], Any]) -> Any:
    """Wait until a value that another process updates is the same in looks over half a second; gives it."""
    values: list[Any] = []

    def stands() -> bool:
        values.append(value())
        return len(values) > 10 and all(one == values[-1] for one in values[-10:])

    eventually(stands, f"a value that stands still: {values[-10:]}")
    return values[-1]
