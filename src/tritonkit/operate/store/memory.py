"""Whether a folder is in memory: on a tmpfs, so that what is decrypted into it never lies on a disk."""

from __future__ import annotations

import os
from pathlib import Path

from tritonkit.errors import UsageError

__all__ = ["require_memory"]

_IN_MEMORY = ("tmpfs", "ramfs")
_MOUNTS = Path("/proc/self/mountinfo")


def require_memory(folder: Path) -> None:
    """UsageError where a folder, which need not be there yet, is not on a tmpfs or ramfs."""
    folder = folder.resolve()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    kind = _kinds().get(there.stat().st_dev, "unknown")
    if kind not in _IN_MEMORY:
        raise UsageError(
            str(folder), found=f"it is on a file system of the kind {kind}, not in memory",
            wanted="a folder on a tmpfs, such as one below /dev/shm",
            todo="name one with --repository",
        )  # fmt: skip


def _kinds() -> dict[int, str]:
    """Device -> kind of the file system mounted from it (proc(5): the third field, and the first after ` - `)."""
    found = {}
    for line in _MOUNTS.read_text(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        major, _, minor = before.split()[2].partition(":")
        found[os.makedev(int(major), int(minor))] = after.split()[0]
    return found
