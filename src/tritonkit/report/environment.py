"""The machine a report is written on: what its figures hold for."""

from __future__ import annotations

import contextlib
import platform
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "this_machine"]


@dataclass(frozen=True)
class Machine:
    """A processor's name, the cores that may be used, the system."""

    processor: str
    cores: int
    system: str


def this_machine(cores: int, cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """What Linux says of the processor; the architecture where it says nothing."""
    name = platform.machine()
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                name = value.strip()
                break
    return Machine(name, cores, platform.platform(aliased=True, terse=True))
