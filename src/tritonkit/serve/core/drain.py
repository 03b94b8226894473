"""Draining before a stop: refuse new calls, and let ensembles finish.

A server that was told to end refuses what an ensemble sends to its next step, so ensembles are unloaded first. For a
model that is being unloaded Triton says NOT_FOUND, which callers take for the last word: the guard lets it say
UNAVAILABLE instead, from before the first model goes.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import time
from collections.abc import Iterable

from .unix_http import Admin

__all__ = ["finish_ensembles", "finish_models", "refuse_calls", "spare_calls"]

_POLL_S = 0.05
_SPARED_S = 1.0


def refuse_calls(pid: int) -> None:
    """Have the guard in a tritonserver answer new calls with UNAVAILABLE; those it has go on. Without a guard nothing
    happens: the signal is one that is ignored by default."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGURG)


def spare_calls(pid: int) -> None:
    """Refuse new calls, and give the others a moment, before a tritonserver with endless calls is killed."""
    refuse_calls(pid)
    time.sleep(_SPARED_S)


def finish_ensembles(admin: Admin, ensembles: Iterable[str], within_s: float) -> None:
    """Let the requests that ensembles have begun be answered, and take no new ones for them.

    An unloaded ensemble finishes its requests while its steps are still there (tried on 2.51; SIGTERM
    alone fails every request that is between two steps).

    Args:
        admin: the server's own API.
        ensembles: their names, each before those it calls: those stay until it is done.
        within_s: seconds after which the remaining requests are given up.
    """
    deadline = time.monotonic() + within_s
    # A server that is gone has nothing in flight.
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        for name in ensembles:
            admin.unload(name)
            while time.monotonic() < deadline and _is_loaded(admin, name):
                time.sleep(_POLL_S)


def finish_models(admin: Admin, within_s: float) -> bool:
    """Unload all models, which get no new calls any more; whether everything was answered and unloaded in time.

    Then the server can be killed: Triton, told to end, would answer the last callers with CANCELLED.
    """
    deadline = time.monotonic() + within_s
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        for name in _in(admin, "READY"):
            admin.unload(name)
        while _in(admin, "READY", "LOADING", "UNLOADING"):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True
    return False


def _in(admin: Admin, *states: str) -> list[str]:
    """The models of which a version is in one of these states."""
    return sorted({entry["name"] for entry in admin.index() if entry.get("state") in states})


def _is_loaded(admin: Admin, name: str) -> bool:
    """Whether a version of a model is there, even one that is being unloaded."""
    return any(entry.get("name") == name and entry.get("reason") != "unloaded" for entry in admin.index())
