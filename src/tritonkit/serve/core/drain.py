"""Draining before a stop: refuse new calls, and let ensembles finish.

A server that is ending refuses what an ensemble sends to its next step, so ensembles are unloaded first. For a model
that is being unloaded Triton answers NOT_FOUND, after which callers do not retry. So the guard makes that UNAVAILABLE
before the first model is unloaded.
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
    """Have the guard in a tritonserver answer new calls with UNAVAILABLE; calls in progress continue.

    Without a guard nothing happens, because a process ignores this signal by default.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGURG)


def spare_calls(pid: int) -> None:
    """Refuse new calls, and leave the others a moment to finish, before a tritonserver with endless calls is killed."""
    refuse_calls(pid)
    time.sleep(_SPARED_S)


def finish_ensembles(admin: Admin, ensembles: Iterable[str], within_s: float) -> None:
    """Finish the requests that ensembles have begun, and accept no new ones for them.

    An unloaded ensemble finishes its requests while its steps are still there (tried on 2.51; SIGTERM
    alone fails every request that is between two steps).

    Args:
        admin: the server's own API.
        ensembles: their names, each before the ensembles that it calls, which stay until it is done.
        within_s: seconds after which the remaining requests are given up.
    """
    deadline = time.monotonic() + within_s
    # A server that has ended has no requests in flight.
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        for name in ensembles:
            admin.unload(name)
            while time.monotonic() < deadline and _is_loaded(admin, name):
                time.sleep(_POLL_S)


def finish_models(admin: Admin, within_s: float) -> bool:
    """Unload all models, which get no more calls; return whether everything was answered and unloaded in time.

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
    """The models with a version in one of these states."""
    return sorted({entry["name"] for entry in admin.index() if entry.get("state") in states})


def _is_loaded(admin: Admin, name: str) -> bool:
    """Whether a model still has a version, even one that is being unloaded."""
    return any(entry.get("name") == name and entry.get("reason") != "unloaded" for entry in admin.index())
