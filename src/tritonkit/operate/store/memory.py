"""Whether a folder is in memory: on a tmpfs or ramfs, so that decrypted data never lies on a disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tritonkit.errors import UsageError

__all__ = ["free_bytes", "require_memory"]

_IN_MEMORY = ("tmpfs", "ramfs")
_MOUNTS = Path("/proc/self/mountinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def require_memory(folder: Path) -> None:
    """Raise UsageError if a folder, which need not exist yet, is not on a tmpfs or ramfs."""
    folder = folder.resolve()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    kind = _kinds().get(there.stat().st_dev, "unknown")
    if kind not in _IN_MEMORY:
        raise UsageError(
            str(folder),
            found=f"it is on a file system of the kind {kind}, not in memory",
            wanted="a folder on a tmpfs, such as one below /dev/shm",
            todo="name one with --repository, or with --memory where a backup is served",
        )


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written to a folder in memory, as file system, machine and cgroup (v2) allow."""
    facts = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    free = [shutil.disk_usage(folder).free, int(facts["MemAvailable"].split()[0]) << 10]
    try:
        most, used = ((_CGROUP / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        free.append(int(most) - int(used))
    except (OSError, ValueError):  # no limit
        pass
    return max(0, min(free))


def _kinds() -> dict[int, str]:
    """Device -> kind of the file system mounted from it (proc(5): the third field, and the first after ` - `)."""
    kinds = {}
    for line in _MOUNTS.read_text(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        major, _, minor = before.split()[2].partition(":")
        kinds[os.makedev(int(major), int(minor))] = after.split()[0]
    return kinds
