"""What this machine has for a server to use."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cores"]


def cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores this process may use: its affinity, and the CPU quota of its container (cgroup v2
    `cpu.max`, v1 `cpu.cfs_quota_us`), rounded down, at least 1."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return max(1, min(allowed, int(quota))) if quota is not None else allowed


def _quota(cgroup: Path) -> float | None:
    """Cores the container may use, or None without a limit."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if limit in ("max", "-1"):
        return None
    return int(limit) / int(period)
