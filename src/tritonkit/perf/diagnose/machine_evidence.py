"""Changes on a server's machine between looks. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tritonkit.perf.diagnose.snapshot import Look, MachineLook, ProcessLook

__all__ = ["MachineEvidence", "StubEvidence", "machine_evidence"]

_WORKING = 0.1
"""The share of a process' CPU time from which on a thread counts as working."""


@dataclass(frozen=True, slots=True)
class StubEvidence:
    """A Python stub: cores it used, threads that shared them, and threads that could have run. `waits_per_s`
    is how often each of those threads stopped to wait in a second; 0 with a single one."""

    pid: int
    model: str
    cores: float
    working_threads: int
    runnable: float
    waits_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MachineEvidence:
    """The server's machine over the window; None for values that it does not report.

    Args:
        server_cores, other_cores: mean cores used by the server, and by all other processes except this one.
        runnable: the server's threads that ran or waited for a core, on average; other_runnable:
            the threads of all others.
        psi_cpu, psi_memory: the share of the time in which some task waited for the CPU or for memory.
        throttled: the share of the CPU quota's periods in which it was used up;
            throttled_s: seconds for which the cgroup's tasks stood still.
        memory_share, memory_hits, oom_kills: see `MachineLook`; of counters, the rise.
    """

    cores: int
    seconds: float
    server_cores: float
    other_cores: float
    stubs: tuple[StubEvidence, ...] = ()
    runnable: float | None = None
    other_runnable: float | None = None
    psi_cpu: float | None = None
    psi_memory: float | None = None
    periods: int | None = None
    throttled: float | None = None
    throttled_s: float | None = None
    memory_share: float | None = None
    memory_limit_mib: float | None = None
    memory_hits: int | None = None
    oom_kills: int | None = None
    shm_free_mib: float | None = None
    shm_mib: float | None = None

    @property
    def waiting(self) -> float | None:
        """The server's threads that waited for a core, on average."""
        return None if self.runnable is None else max(0.0, self.runnable - self.server_cores)


def machine_evidence(
    looks: Sequence[Look], runnable: Mapping[int, float], everywhere: float | None
) -> MachineEvidence | None:
    """Changes from the first to the last look at the machine; None for fewer than two looks."""
    machines = [(look.at_s, look.machine) for look in looks if look.machine is not None]
    if len(machines) < 2 or machines[-1][0] <= machines[0][0]:
        return None
    (start, first), (end, last) = machines[0], machines[-1]
    seconds = end - start
    used = _used(first, last)
    before = {process.pid: process.cpu_s for process in first.processes}
    spent = {process.pid: max(0.0, process.cpu_s - before.get(process.pid, 0.0)) for process in last.processes}
    waits = {process.pid: process.waits for process in first.processes}
    server_s = sum(spent.values())
    busy_s = last.busy_s - first.busy_s - (last.own_s - first.own_s)
    own = [runnable[pid] for pid in used if pid in runnable]
    can_run = sum(own) if own else None
    return MachineEvidence(
        last.cores,
        seconds,
        server_s / seconds,
        max(0.0, busy_s - server_s) / seconds,
        stubs=tuple(
            _stub(
                process, spent[process.pid] / seconds, used[process.pid], runnable, waits.get(process.pid, {}), seconds
            )
            for process in last.processes
            if process.model
        ),
        runnable=can_run,
        other_runnable=(None if can_run is None or everywhere is None else max(0.0, everywhere - can_run)),
        psi_cpu=_share(first.psi_cpu_s, last.psi_cpu_s, seconds),
        psi_memory=_share(first.psi_memory_s, last.psi_memory_s, seconds),
        periods=_rise(first.periods, last.periods),
        throttled=_share(first.throttled, last.throttled, _rise(first.periods, last.periods) or 0),
        throttled_s=_share(first.throttled_s, last.throttled_s, 1.0),
        memory_share=max((m.memory_share for _, m in machines if m.memory_share is not None), default=None),
        memory_limit_mib=last.memory_limit_mib,
        memory_hits=_rise(first.memory_hits, last.memory_hits),
        oom_kills=_rise(first.oom_kills, last.oom_kills),
        shm_free_mib=min((m.shm_free_mib for _, m in machines if m.shm_free_mib is not None), default=None),
        shm_mib=last.shm_mib,
    )


def _used(first: MachineLook, last: MachineLook) -> dict[int, dict[int, float]]:
    """Seconds of CPU by process and thread; a thread that is new has all of its own."""
    before = {process.pid: process.threads for process in first.processes}
    return {
        process.pid: {
            tid: max(0.0, s - before.get(process.pid, {}).get(tid, 0.0)) for tid, s in process.threads.items()
        }
        for process in last.processes
    }


def _stub(
    look: ProcessLook,
    cores: float,
    used: Mapping[int, float],
    runnable: Mapping[int, float],
    waits_before: Mapping[int, int],
    seconds: float,
) -> StubEvidence:
    whole = sum(used.values())
    working = [tid for tid, s in used.items() if whole and s >= _WORKING * whole]
    rises = [look.waits.get(tid, 0) - waits_before.get(tid, 0) for tid in working]
    waits = max(0, min(rises, default=0)) / seconds
    return StubEvidence(look.pid, look.model, cores, len(working), runnable.get(look.pid, 0.0), waits)


def _rise(first: int | None, last: int | None) -> int | None:
    return None if first is None or last is None else max(0, last - first)


def _share(first: float | None, last: float | None, whole: float) -> float | None:
    return None if first is None or last is None or not whole else max(0.0, last - first) / whole
