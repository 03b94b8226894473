"""Bounded queues on a server whose batcher sleeps through the moment in which an instance becomes free."""

from __future__ import annotations

from collections.abc import Iterable

from tritonkit.diagnose.snapshot import ModelFacts
from tritonkit.releases import BOUNDED_QUEUES_WAKE, release_of_server
from tritonkit.serve.core.launch import has_guard

__all__ = ["stall_note"]


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
