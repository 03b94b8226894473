"""Bounds that need tritonkit's guard in the server: on queues, and on requests in flight in an ensemble."""

from __future__ import annotations

from collections.abc import Iterable

from tritonkit.perf.diagnose.snapshot import ModelFacts
from tritonkit.releases import BOUNDED_QUEUES_WAKE, release_of_server
from tritonkit.serve.core.launch import has_guard

__all__ = ["in_flight_note", "stall_note"]


def stall_note(facts: Iterable[ModelFacts], version: str, pid: int | None) -> str:
    """Notes for the user about the bounded queues of a server; empty if they cannot stall.

    `pid` is the server's process if it runs on this machine: the guard in it works around Triton's fault.
    """
    bounded = sorted(model.name for model in facts if model.bounded)
    release = release_of_server(version)
    if not bounded or release is None or release >= BOUNDED_QUEUES_WAKE:
        return ""
    if pid is not None and has_guard(pid):
        return ""
    guard = "it runs without tritonkit's guard" if pid else "unless tritonkit's guard is in it"
    return (
        f"the queue of {', '.join(bounded)} has a bound (max_queue_size, default_timeout or priority_levels): before"
        f" Triton 26.08 its requests can wait half a second for a free instance, and this server is {version}"
        f" ({guard}); serve it with tritonkit, with a newer Triton, or without the bound"
    )


def in_flight_note(facts: Iterable[ModelFacts], pid: int | None) -> str:
    """A note about ensembles with a bound on requests in flight; empty without such ensembles.

    Requests that wait for that bound appear in none of the server's figures.
    """
    bounds = sorted(f"{model.name} ({model.in_flight})" for model in facts if model.in_flight)
    if not bounds:
        return ""
    named = f"max_inflight_requests of {', '.join(bounds)}"
    if pid is not None and not has_guard(pid):
        return f"{named} bounds nothing: the server runs without tritonkit's guard; serve it with tritonkit"
    held = "" if pid is not None else " (where tritonkit's guard is in the server; elsewhere it bounds nothing)"
    return (
        f"{named} lets the other requests wait before the first step{held}: the server's figures do not show that wait,"
        " and no batch of a step is larger than the bound; if requests in flight stay near it, try a higher one"
    )
