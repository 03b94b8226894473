"""Processor time of a process, from /proc, of children that have ended, and of others of the host."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

__all__ = ["children_s", "cpu_s", "on_part", "stolen_s"]

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds that a process and its threads have run so far, in steps of a hundredth (proc(5), stat)."""
    # The name in brackets may hold anything, brackets and spaces too.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def children_s() -> float:
    """Processor time of this process's children that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stolen_s() -> float:
    """Seconds of this machine's processors that its host has given to others since it started (proc(5))."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[8]) / _TICKS


@contextlib.contextmanager
def on_part(part: int, parts: int) -> Iterator[None]:
    """Give processes started meanwhile one of several equal parts of the cores; with fewer cores than parts, all of
    them."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[part::parts] or allowed)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
