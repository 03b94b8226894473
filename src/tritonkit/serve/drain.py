"""Ensembles before a stop: a server told to end refuses what an ensemble sends to its next step."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from tritonkit.serve.rpc import NotAnswered, connect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritonkit.serve.repository import ServedModel

__all__ = ["finish_ensembles"]

_CALL_S = 5.0
_POLL_S = 0.05


def finish_ensembles(
    address: str, key: str, models: Iterable[ServedModel], within_s: float
) -> None:
    """Let the requests that ensembles have begun be answered, and take no new ones for them.

    An unloaded ensemble finishes its requests while its steps are still there (tried on 2.51; SIGTERM
    alone fails every request that is between two steps).

    Args:
        address: of the server's gRPC service.
        key: the run's admin key.
        models: each after those it calls, as `read_models` gives them; an ensemble that others call
            stays until these are done.
        within_s: after so many seconds it gives up on what is left.
    """
    deadline = time.monotonic() + within_s
    ensembles = [model.name for model in models if model.parts]
    # A server that is gone has nothing in flight.
    with contextlib.suppress(NotAnswered), connect(address, key) as service:
        for name in reversed(ensembles):
            service.unload(name, _CALL_S)
            while time.monotonic() < deadline and service.is_loaded(name, _CALL_S):
                time.sleep(_POLL_S)
