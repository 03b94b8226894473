"""Processor time of a process, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_s"]

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds that a process and its threads have run so far, in steps of a hundredth (proc(5), stat)."""
    # The name in brackets may hold anything, brackets and spaces too.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
