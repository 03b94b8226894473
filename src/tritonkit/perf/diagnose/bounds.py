"""Bounds that need tritonkit's guard in the server: of queues, and of what is under way in an ensemble."""

from __future__ import annotations

from collections.abc import Iterable

from tritonkit.perf.diagnose.snapshot import ModelFacts
from tritonkit.releases import BOUNDED_QUEUES_WAKE, release_of_server
from tritonkit.serve.core.launch import has_guard

__all__ = ["in_flight_note", "stall_note"]


def stall_note(facts: Iterable[ModelFacts], version: str, pid: int | None) -> str:
    """Notes for the user about the bounded queues of a server; empty where they cannot stall.

    `pid` is the server's process where it runs on this machine: the guard in it makes good what Triton misses.
    """
    bounded = sorted(each.name for each in facts if each.bounded)
    release = release_of_server(version)
    if not bounded or release is None or release >= BOUNDED_QUEUES_WAKE:
        return ""
    if pid is not None and has_guard(pid):
        return ""
    guard = "it runs without tritonkit's guard" if pid else "unless tritonkit's guard is in it"
    return (
        f"the queue of {', '.join(bounded)} has a bound (max_queue_size, default_timeout or priority_levels): before"
        f" Triton 26.08 its requests can wait half a second for an instance that is free, and this server is {version}"
        f" ({guard}); serve it with tritonkit, with a newer Triton, or without the bound"
    )


def in_flight_note(facts: Iterable[ModelFacts], pid: int | None) -> str:
    """A note about the ensembles of which only so many requests are under way at once; empty without such.

    Requests that wait for it are in no figure of the server's.
    """
    bounds = sorted(f"{each.name} ({each.in_flight})" for each in facts if each.in_flight)
    if not bounds:
        return ""
    named = f"max_inflight_requests of {', '.join(bounds)}"
    if pid is not None and not has_guard(pid):
        return f"{named} bounds nothing: the server runs without tritonkit's guard; serve it with tritonkit"
    held = "" if pid is not None else " (where tritonkit's guard is in the server; elsewhere it bounds nothing)"
    return (
        f"{named} lets the other requests wait before the first step{held}: the server's figures do not show that wait,"
        " and no batch of a step is larger; where requests in flight stay near the bound, try a higher one"
    )
