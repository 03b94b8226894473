"""Ensembles before a stop: a server that is ending refuses what an ensemble sends to its next step."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Iterable

from .unix_http import Admin

__all__ = ["finish_ensembles"]

_POLL_S = 0.05


def finish_ensembles(admin: Admin, ensembles: Iterable[str], within_s: float) -> None:
    """Let the requests that ensembles have begun be answered, and take no new ones for them.

    An unloaded ensemble finishes its requests while its steps are still there (tried on 2.51; SIGTERM
    alone fails every request that is between two steps).

    Args:
        admin: the server's own API.
        ensembles: their names, each before those it calls: those stay until it is done.
        within_s: after so many seconds it gives up on what is left.
    """
    deadline = time.monotonic() + within_s
    # A server that is gone has nothing in flight.
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        for name in ensembles:
            admin.unload(name)
            while time.monotonic() < deadline and _is_loaded(admin, name):
                time.sleep(_POLL_S)


def _is_loaded(admin: Admin, name: str) -> bool:
    """Whether a version of a model is there, even one that is being unloaded."""
    return any(
        entry.get("name") == name and entry.get("reason") != "unloaded" for entry in admin.index()
    )
