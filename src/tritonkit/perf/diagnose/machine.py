"""The machine of a local server: its processes, cores, limits and memory, read from /proc and its cgroups.

Everything is read through the server's own process, so a container's own limits and /dev/shm apply.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tritonkit.machine import process_stat, process_tree, processor_s
from tritonkit.perf.diagnose.snapshot import MachineLook, ProcessLook

__all__ = ["RunnableThreads", "find_server", "look_at_machine", "server_processes"]

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_STUB = "triton_python_backend_stub"
_LISTEN = "0A"
_UNLIMITED = 1 << 60
"""A limit from here on means none: cgroup v1 writes a number near 2^63 if there is no limit."""


def find_server(port: int, proc: Path = _PROC) -> int | None:
    """The process that listens on a TCP port of this machine; None if it cannot be seen (another user's)."""
    inodes = {f"socket:[{inode}]" for inode in _listeners(port, proc)}
    if not inodes:
        return None
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for link in (folder / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(link.readlink()) in inodes:
                        return int(folder.name) if _is_triton(folder) else None
    return None


def _is_triton(folder: Path) -> bool:
    """Whether the process is the server itself, and not a proxy in front of it, whose threads say nothing about it."""
    return (folder / "comm").read_text().strip() == "tritonserver"


def _listeners(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9]


def server_processes(pid: int, proc: Path = _PROC) -> dict[int, str]:
    """The server and all processes below it: pid -> the model of a Python stub, else nothing."""
    return {process: _stub_model(proc / str(process)) for process in process_tree(pid, proc)}


def _stub_model(folder: Path) -> str:
    """<repository>/<model>/<version>/<file> is a stub's first argument."""
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    is_stub = words[0].endswith(_STUB) and len(words) > 1
    return Path(words[1]).parts[-3] if is_stub and len(Path(words[1]).parts) > 2 else ""


def look_at_machine(pid: int, cores: int, proc: Path = _PROC) -> MachineLook | None:
    """One look at the machine of a server; None when its process is gone."""
    processes = tuple(_look_at(proc / str(process), model) for process, model in server_processes(pid, proc).items())
    if not any(process.threads for process in processes):
        return None
    busy = [int(word) for word in (proc / "stat").read_text().split("\n", 1)[0].split()[1:]]
    ticks = os.sysconf("SC_CLK_TCK")
    own = os.times()
    return MachineLook(
        cores=cores,
        # user, nice, system, irq, softirq; not idle, iowait and what a hypervisor took
        busy_s=(busy[0] + busy[1] + busy[2] + busy[5] + busy[6]) / ticks,
        own_s=own.user + own.system,
        processes=processes,
        psi_cpu_s=_pressure("cpu", proc),
        psi_memory_s=_pressure("memory", proc),
        **_cpu_limit(pid, proc),
        **_memory(pid, proc),
        **_shared_memory(pid, proc),
    )


def _look_at(folder: Path, model: str) -> ProcessLook:
    """Context switches are read for stubs alone, whose threads may share an interpreter's lock."""
    waits = _thread_waits(folder) if model else {}
    return ProcessLook(int(folder.name), model, processor_s(folder), _thread_seconds(folder), waits)


def _thread_waits(folder: Path) -> dict[int, int]:
    waits = {}
    with contextlib.suppress(OSError):
        for task in (folder / "task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                text = (task / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2]
                waits[int(task.name)] = int(text.split("\n", 1)[0])
    return waits


def _thread_seconds(folder: Path) -> dict[int, float]:
    try:
        return {int(task.name): processor_s(task) for task in (folder / "task").iterdir()}
    except OSError:
        return {}


def _pressure(kind: str, proc: Path) -> float | None:
    """Seconds in which some task waited (https://docs.kernel.org/accounting/psi.html)."""
    try:
        line = (proc / "pressure" / kind).read_text().split("\n", 1)[0]
        return int(line.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def _cgroup(pid: int, controller: str, proc: Path) -> Path | None:
    """The folder of a process' cgroup that has a controller: version 1's, or else version 2's."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, names, path = line.split(":", 2)
        first = _CGROUPS / controller if controller in names.split(",") else None
        folder = _CGROUPS if not names else first
        # In a container the path may be the host's, while the container sees its own group as the root.
        for candidate in () if folder is None else (folder / path.lstrip("/"), folder):
            if (candidate / f"{controller}.stat").is_file():
                return candidate
    return None


def _numbers(file: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        pairs = [line.split() for line in file.read_text().splitlines()]
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    except OSError:
        return {}


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # "max"
        return None


def _cpu_limit(pid: int, proc: Path) -> dict[str, Any]:
    folder = _cgroup(pid, "cpu", proc)
    counters = {} if folder is None else _numbers(folder / "cpu.stat")
    if "nr_periods" not in counters:
        return {}
    throttled_s = (
        counters["throttled_usec"] / 1e6 if "throttled_usec" in counters else counters.get("throttled_time", 0) / 1e9
    )
    return {"periods": counters["nr_periods"], "throttled": counters["nr_throttled"], "throttled_s": throttled_s}


def _memory(pid: int, proc: Path) -> dict[str, Any]:
    """The cgroup's memory if it has a limit, else the machine's."""
    folder = _cgroup(pid, "memory", proc)
    if folder is not None:
        used, limit = _number(folder / "memory.current"), _number(folder / "memory.max")
        events = _numbers(folder / "memory.events")
        hits, kills = events.get("max"), events.get("oom_kill")
        if used is None:
            used = _number(folder / "memory.usage_in_bytes")
            limit = _number(folder / "memory.limit_in_bytes")
            hits = _number(folder / "memory.failcnt")
            kills = _numbers(folder / "memory.oom_control").get("oom_kill")
        if used is not None and limit is not None and 0 < limit < _UNLIMITED:
            return {
                "memory_share": used / limit,
                "memory_limit_mib": limit / (1 << 20),
                "memory_hits": hits,
                "oom_kills": kills,
            }
    try:
        text = (proc / "meminfo").read_text().replace(":", "").replace(" kB", "")
        facts = {line.split()[0]: int(line.split()[1]) for line in text.splitlines()}
        total, free = facts["MemTotal"], facts["MemAvailable"]
    except (OSError, ValueError, KeyError, IndexError):
        return {}
    return {"memory_share": 1 - free / total, "memory_limit_mib": total / 1024}


def _shared_memory(pid: int, proc: Path) -> dict[str, Any]:
    try:
        filesystem = os.statvfs(proc / str(pid) / "root" / "dev" / "shm")
    except OSError:
        return {}
    scale = filesystem.f_frsize / (1 << 20)
    return {"shm_free_mib": filesystem.f_bavail * scale, "shm_mib": filesystem.f_blocks * scale}


class RunnableThreads:
    """Counts, look by look, how many threads run or wait for a core.

    A thread's state is R for both, so the mean over many looks minus the used CPU is the waiting part. The
    kernel's own sums of that (`schedstat`) are not compiled into every kernel.

    Args:
        kept: looks that count, the latest ones.
    """

    def __init__(self, kept: int, proc: Path = _PROC) -> None:
        self._proc = proc
        self._seen: deque[tuple[dict[int, int], int]] = deque(maxlen=kept)

    def look(self, pids: Iterable[int]) -> None:
        """Count once."""
        try:
            running = (self._proc / "loadavg").read_text().split()[3].partition("/")[0]
        except (OSError, IndexError):
            return
        # Without the thread that reads.
        self._seen.append(({pid: self._running(pid) for pid in pids}, max(0, int(running) - 1)))

    def _running(self, pid: int) -> int:
        count = 0
        with contextlib.suppress(OSError):
            for task in (self._proc / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError, IndexError):
                    count += process_stat(task)[0] == "R"
        return count

    def means(self) -> tuple[dict[int, float], float | None]:
        """Numbers by process, and of the whole machine; empty before the first look."""
        samples = tuple(self._seen)
        if not samples:
            return {}, None
        pids = {pid for counts, _ in samples for pid in counts}
        sums = {pid: sum(counts.get(pid, 0) for counts, _ in samples) for pid in pids}
        return {pid: n / len(samples) for pid, n in sums.items()}, sum(n for _, n in samples) / len(samples)
