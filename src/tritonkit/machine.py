"""Cores and memory that a server may use on this machine, and the processor time of processes.

This module needs only the standard library: the server's image has it without tritonkit.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = [
    "cores",
    "cores_within",
    "free_memory",
    "parts_of",
    "process_stat",
    "process_tree",
    "processor_s",
    "tree_processor_s",
]

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = _CGROUP, groups: Path = _PROC / "self" / "cgroup") -> int:
    """Cores this process may use: its affinity, and the CPU quota of its container or of any group above it (cgroup
    v2 `cpu.max`, v1 `cpu.cfs_quota_us`), rounded down, at least 1."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(cgroup, groups)
    return max(1, min(allowed, int(quota))) if quota is not None else allowed


def cores_within(cores: int) -> int:
    """The largest number of cores up to this one for which configurations are made."""
    return parts_of(cores + 1)[-1]


def parts_of(cores: int) -> list[int]:
    """Numbers of cores, below this one, for which configurations are made: powers of two and three times those.

    From 2 on each is at most 1.5 times the one before, and below 64 cores there are eleven.
    """
    counts = {factor << power for factor in (1, 3) for power in range(cores.bit_length())}
    return sorted(count for count in counts if count < cores)


def _quota(cgroup: Path, groups: Path) -> float | None:
    """Cores that the control groups of this process may use; None without a limit."""
    quotas = [_quota_of(folder) for folder in _cpu_folders(cgroup, groups)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _cpu_folders(cgroup: Path, groups: Path) -> set[Path]:
    """Folders that may hold limits: the root in a container, else the process's group and all groups above it."""
    folders = {cgroup, cgroup / "cpu"}
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroup / "cpu" if controllers else cgroup
        own = root / path.lstrip("/")
        folders |= {own, *(above for above in own.parents if above.is_relative_to(root))}
    return folders


def _quota_of(folder: Path) -> float | None:
    """Cores that the limit in this folder allows; None if it has no limit."""
    try:
        limit, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if limit in ("max", "-1"):
        return None
    return int(limit) / int(period)


def free_memory(
    cgroup: Path = _CGROUP, groups: Path = _PROC / "self" / "cgroup", meminfo: Path = _PROC / "meminfo"
) -> int:
    """Bytes of memory that this process may still take, given the machine's free memory and the limits of its container
    and the groups above it (cgroup v2 `memory.max`); 0 if unknown."""
    bounds = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        [line] = [line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")]
        bounds.append(int(line.split()[1]) << 10)
    for folder in _cpu_folders(cgroup, groups):
        with contextlib.suppress(OSError, ValueError):  # no such file, or `max`
            limit = int((folder / "memory.max").read_text())
            bounds.append(max(1, limit - int((folder / "memory.current").read_text())))
    return min(bounds, default=0)


def process_tree(pid: int, proc: Path = _PROC) -> list[int]:
    """A process and all its descendants."""
    below: dict[int, list[int]] = {}
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            below.setdefault(int(process_stat(folder)[1]), []).append(int(folder.name))
    tree, left = [], [pid]
    while left:
        process = left.pop()
        tree.append(process)
        left += below.get(process, [])
    return tree


def tree_processor_s(pid: int, proc: Path = _PROC) -> float:
    """Processor seconds that a process and its descendants have used so far, including those that have ended and were
    waited for. The sum never falls while the process lives."""
    tree = process_tree(pid, proc)
    while True:
        ticks = sum(_ticks(proc / str(process), ended=True) for process in tree)
        # A process that was waited for in the meantime is missing, or counted twice.
        before, tree = tree, process_tree(pid, proc)
        if tree == before:
            return ticks / os.sysconf("SC_CLK_TCK")


def processor_s(folder: Path) -> float:
    """Seconds of the process or thread with this folder of /proc, in user and kernel mode; 0 if it has just ended."""
    return _ticks(folder) / os.sysconf("SC_CLK_TCK")


def _ticks(folder: Path, *, ended: bool = False) -> int:
    """Processor time in the kernel's ticks, whose sums are exact.

    Args:
        ended: whether to include children that have ended and were waited for (proc(5): cutime, cstime).
    """
    try:
        return sum(map(int, process_stat(folder)[11 : 15 if ended else 13]))
    except (OSError, ValueError):
        return 0


def process_stat(folder: Path) -> list[str]:
    """The fields of a `stat` after the program's name, which may hold any character: state, parent, ..."""
    return (folder / "stat").read_text().rpartition(")")[2].split()
