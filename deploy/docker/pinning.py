"""Cores of its own for a server whose quota is less than the machine: those with the least other load.

A server that runs on more cores than its quota has spends more of it on waking threads across cores, and stands still
for the rest of each period once it is used up. Pinned, it sees as many cores as it may use. Nobody keeps others from
these cores, so every few seconds it moves where other load has come.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from checks import Refused
from machine import process_tree, tree_processor_s

__all__ = ["Pinning", "best", "listed", "pinning_of"]

_STAT = Path("/proc/stat")
_FIRST_S, _AGAIN_S = 0.2, 2.0
_GAIN = 0.25
"""Least gain of a move, in cores: a move loses the caches."""
_IDLE = slice(3, 5)


def best(others: Mapping[int, float], chosen: Collection[int], count: int) -> set[int]:
    """The `count` cores with the least other load; the chosen ones while a move would gain little."""
    order = list(others)
    # Servers that start together see the same figures.
    random.shuffle(order)
    idlest = sorted(order, key=lambda core: others[core])[:count]
    won = sum(others[core] for core in chosen) - sum(others[core] for core in idlest)
    return set(chosen) if chosen and won < _GAIN * count else set(idlest)


def pinning_of(setting: str, count: int) -> Pinning | None:
    """Pinning to `count` cores, if TRITON_PIN requests it and the server sees more."""
    if setting not in ("", "0", "1"):
        raise Refused(Path("TRITON_PIN"), f"it is {setting}", "set it to 1, or leave it out")
    allowed = os.sched_getaffinity(0)
    return Pinning(allowed, count) if setting == "1" and count < len(allowed) else None


def listed(numbers: Iterable[int]) -> str:
    """Cores in words: `0,2`."""
    return ",".join(map(str, sorted(numbers)))


class Pinning:
    """The cores of one tritonserver and its stubs.

    Args:
        allowed: cores that it may be given.
        count: how many of them it gets.
    """

    def __init__(self, allowed: Collection[int], count: int) -> None:
        self._allowed, self._count = set(allowed), count
        before = _busy_s()
        time.sleep(_FIRST_S)
        after = _busy_s()
        others = {core: after[core] - before[core] for core in self._allowed}
        self.cores = best(others, (), count)
        self._pid, self._seen_at, self._busy, self._own_s = 0, time.monotonic(), after, 0.0

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Processes that this thread starts in the block get the cores, and see no others."""
        os.sched_setaffinity(0, self.cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self._allowed)

    def poll(self, pid: int) -> bool:
        """Called every tick with the process that was started; whether it has moved."""
        now = time.monotonic()
        elapsed_s = now - self._seen_at
        if pid == self._pid and elapsed_s < _AGAIN_S:
            return False
        same_process, before, own_before = pid == self._pid, self._busy, self._own_s
        self._pid, self._seen_at, self._busy, self._own_s = (pid, now, _busy_s(), tree_processor_s(pid))
        if not same_process:
            return False
        own = (self._own_s - own_before) / elapsed_s / self._count
        others = {
            core: max(0.0, (self._busy[core] - before[core]) / elapsed_s - (own if core in self.cores else 0.0))
            for core in self._allowed
        }
        cores = best(others, self.cores, self._count)
        if cores == self.cores:
            return False
        self.cores = cores
        self._move(pid)
        return True

    def _move(self, pid: int) -> None:
        """Twice: a thread that was started meanwhile has the cores of the one that started it."""
        for process in (*process_tree(pid), *process_tree(pid)):
            for task in Path(f"/proc/{process}/task").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(task.name), self.cores)


def _busy_s() -> dict[int, float]:
    """Seconds that each core of the machine has worked, or was taken by its host (proc(5))."""
    busy_s = {}
    for line in _STAT.read_text().splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name != "cpu":
            times = list(map(int, ticks))[:8]  # guests' are in the first two as well
            busy_s[int(name[3:])] = (sum(times) - sum(times[_IDLE])) / os.sysconf("SC_CLK_TCK")
    return busy_s
