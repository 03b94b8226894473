"""The reasons for which GPUs of this machine lower their clocks, by the driver's own program nvidia-smi.

Triton's metrics lack them. NVIDIA's Python bindings (nvidia-ml-py) read the same; nvidia-smi comes with each driver, so
nothing needs to be installed.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from tritonkit.serve.core.probe import run_probe

__all__ = ["ClockLook", "Clocks", "has_clocks", "look_at_clocks"]

_TOOL = "nvidia-smi"
_QUERY = "uuid,clocks_event_reasons.active,clocks.sm,clocks.max.sm"
_TIMEOUT_S, _EVERY_S, _KEPT = 5.0, 1.0, 600
_REASONS: Mapping[int, str] = {
    0x04: "its power limit",
    0x08: "a hardware slowdown",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "a power brake",
}
"""Bits of NVML's nvmlClocksEventReasons that mean throttling; idling and clocks that a person set do not."""


@dataclass(frozen=True, slots=True)
class ClockLook:
    """A GPU's clock at a moment, its highest one in MHz, and the reasons why it is lower; empty if it is not."""

    mhz: float
    most_mhz: float
    reasons: tuple[str, ...] = ()


class Clocks:
    """The looks of some time at this machine's GPUs."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[str, ClockLook]]] = deque(maxlen=_KEPT)

    def watch(self, end: threading.Event) -> None:
        """Look once a second, because each look is a program, until the end."""
        while True:
            self._looks.append((time.monotonic(), look_at_clocks()))
            if end.wait(_EVERY_S):
                return

    def since(self, at_s: float) -> dict[str, tuple[ClockLook, ...]]:
        """The looks since a moment, by GPU."""
        looks: dict[str, tuple[ClockLook, ...]] = {}
        for _, by_gpu in (pair for pair in tuple(self._looks) if pair[0] >= at_s):
            for gpu, look in by_gpu.items():
                looks[gpu] = (*looks.get(gpu, ()), look)
        return looks


def has_clocks() -> bool:
    """Whether this machine has NVIDIA's program."""
    return shutil.which(_TOOL) is not None


def look_at_clocks() -> dict[str, ClockLook]:
    """The clocks of this machine's GPUs, by UUID; empty if the program fails, or does not know a field."""
    command = [_TOOL, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError):
        done = run_probe(command, _TIMEOUT_S)
        if done.returncode == 0:
            return _parsed(done.stdout)
    return {}


def _parsed(text: str) -> dict[str, ClockLook]:
    """Read lines of four fields; a GPU that does not support one ("[N/A]") is left out."""
    looks: dict[str, ClockLook] = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            uuid, mask, mhz, most = (field.strip() for field in line.split(","))
            active = int(mask, 16)
            looks[uuid] = ClockLook(float(mhz), float(most), tuple(r for bit, r in _REASONS.items() if active & bit))
    return looks
