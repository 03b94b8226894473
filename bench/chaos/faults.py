"""Kill and stop parts at random from a seed, and time how soon each part answers right again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.chaos.parts import UP, Member, members
from bench.chaos.probes import answers_right
from tritonkit.machine import process_stat

if TYPE_CHECKING:
    from bench.chaos.callers import Load
    from bench.chaos.known import Known
    from bench.chaos.stack import Running

__all__ = ["Fault", "Faults", "moments"]

_STOPPED = 0.3
"""The share of stops; the others are kills."""
_STOPPED_S = 2.0, 8.0
_PATIENCE_S, _PAUSE_S = 90.0, 0.1


@dataclass
class Fault:
    """One fault: the part, the time and the kind.

    Args:
        at_s: seconds since the start of the load. stopped_s: seconds for which it was stopped; 0: it was killed.
        recovered_s: seconds until it answered right again; None: it has not yet.
    """

    member: Member
    at_s: float
    stopped_s: float = 0.0
    recovered_s: float | None = None

    @property
    def signal(self) -> str:
        """Its name."""
        return "SIGSTOP" if self.stopped_s else "SIGKILL"


def moments(seed: int, count: int, first_s: float, last_s: float) -> list[float]:
    """The moments of faults: a random one in each of a number of equal spans."""
    chance = random.Random(seed)  # noqa: S311 - drawn again from the same seed
    span = (last_s - first_s) / max(1, count)
    return [first_s + (number + chance.random()) * span for number in range(count)]


@dataclass
class Faults:
    """Faults of a stack, one after the other; a thread watches each until its part answers right.

    Args:
        seed: the seed for the part and the kind of each fault.
    """

    running: Running
    truth: Known
    load: Load
    seed: int
    done: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - drawn again from the same seed
        self._threads: list[threading.Thread] = []

    def strike(self) -> Fault | None:
        """Cause one fault; None if its process ended by itself just before it."""
        member = self._chosen(members(self.running))
        stopped_s = self._chance.uniform(*_STOPPED_S) if self._chance.random() < _STOPPED else 0.0
        fault = Fault(member, self.load.now_s(), stopped_s)
        try:
            os.kill(member.pid, signal.SIGSTOP if stopped_s else signal.SIGKILL)
        except ProcessLookupError:
            return None
        self.done.append(fault)
        thread = threading.Thread(target=self._follow, args=(fault,))
        thread.start()
        self._threads.append(thread)
        return fault

    def settle(self) -> None:
        """Wait until every part answers right again or is given up."""
        for thread in self._threads:
            thread.join()

    def _chosen(self, candidates: list[Member]) -> Member:
        """Each kind of part is as likely as any other, however many processes it has."""
        kinds = sorted({member.part for member in candidates} - {UP})
        kind = self._chance.choice(kinds)
        return self._chance.choice([member for member in candidates if member.part == kind])

    def _follow(self, fault: Fault) -> None:
        if fault.stopped_s:
            time.sleep(fault.stopped_s)
            # Its number belongs to another process by then only if it ended in between.
            with contextlib.suppress(OSError):
                if process_stat(Path(f"/proc/{fault.member.pid}"))[0] == "T":
                    os.kill(fault.member.pid, signal.SIGCONT)
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if self._replaced(fault) and answers_right(self.running, self.truth, fault.member):
                fault.recovered_s = self.load.now_s() - fault.at_s
                return
            time.sleep(_PAUSE_S)

    def _replaced(self, fault: Fault) -> bool:
        """Whether a new process has replaced the killed one."""
        if fault.stopped_s:
            return True
        now = {member.place: member.pid for member in members(self.running)}
        return now.get(fault.member.place, fault.member.pid) != fault.member.pid
