"""Waiting for what a test needs, however busy the machine is: a limit ends what hangs and measures nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 90.0
"""Longer than anything takes that a test waits for beside a load of some processes for each core."""


def eventually(true: Callable[[], Any], what: str = "") -> Any:
    """Wait for something to become true; gives what it was.

    Args:
        true: is called some twenty times a second.
        what: said where it does not come.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.05)
    return found
