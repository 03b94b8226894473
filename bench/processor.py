"""Processor time of a process, from /proc, of children that have ended, and of others of the host."""

from __future__ import annotations

import os
import resource
from pathlib import Path

__all__ = ["children_s", "cpu_s", "stolen_s"]

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
