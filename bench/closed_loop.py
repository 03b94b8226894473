"""Callers that each wait for their answer: a server's highest rate, and the duration of its requests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tritonkit.client import Client

__all__ = ["closed_loop"]


def closed_loop(
    client: Client, model: str, items: Sequence[Mapping[str, Any]], callers: int, seconds: float
) -> NDArray[np.float64]:
    """Call for `seconds`; each caller sends its next item when the last one is answered.

    Args:
        items: requests by input name, of one item each; callers take them in turn.

    Returns:
        float64 [n]: the seconds that each request took.

    Raises:
        ClientError: a request failed.
    """
    callee = client.model(model)
    callee.predict(inputs=items[0])  # connects, and reads the signature
    until = time.monotonic() + seconds

    def call(caller: int) -> list[float]:
        taken: list[float] = []
        at = time.monotonic()
        while at < until:
            callee.predict(inputs=items[(caller + len(taken)) % len(items)])
            now = time.monotonic()
            taken.append(now - at)
            at = now
        return taken

    with ThreadPoolExecutor(callers) as pool:
        return np.concatenate(list(pool.map(call, range(callers))))
