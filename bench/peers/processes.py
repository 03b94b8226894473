"""A server under test as a tree of processes: started in a group of its own, its time and memory read from /proc."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import ServerStartError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Tree", "pinned", "pss", "running"]

TICKS = os.sysconf("SC_CLK_TCK")
STOP_S = 20.0
_PAUSE_S = 0.02


@dataclass(frozen=True)
class Stat:
    """One line of /proc/PID/stat."""

    parent: int
    session: int
    ticks: int
    started: int


class Tree:
    """A process and its descendants, including those that left its group but not its session."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log
        self._seen: dict[int, int] = {}

    def members(self) -> dict[int, Stat]:
        """The living processes; each is remembered, so that none outlives `stop`."""
        stats = _all_stats()
        root = self.process.pid
        pids = {pid for pid, stat in stats.items() if pid == root or stat.session == root}
        while more := {p for p, stat in stats.items() if stat.parent in pids} - pids:
            pids |= more
        # One that was adopted by init after its parent's end is still ours.
        pids |= {p for p, at in self._seen.items() if p in stats and stats[p].started == at}
        self._seen |= {pid: stats[pid].started for pid in pids}
        return {pid: stats[pid] for pid in pids}

    @property
    def ever(self) -> frozenset[int]:
        """The pids of all processes that `members` has listed so far."""
        return frozenset(self._seen)

    def processor_s(self) -> float:
        """Seconds of processor time so far, including that of ended children."""
        return sum(stat.ticks for stat in self.members().values()) / TICKS

    def memory_bytes(self) -> int:
        """Sum of the proportional set sizes: pages that several share count once."""
        return sum(pss(pid) for pid in self.members())

    def stop(self) -> None:
        """Terminate it, then kill what is left of it."""
        self.members()
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
        deadline = time.monotonic() + 5
        while (left := self._left()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_PAUSE_S)
        self.process.wait()

    def _left(self) -> list[int]:
        # A zombie of our own is reaped by `wait`, one of init's by init.
        self.process.poll()
        return [pid for pid in self.members() if _state(pid) not in ("Z", "")]


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    cores: Sequence[int],
    log: Path,
    answers: Callable[[], bool],
    timeout_s: float = 180.0,
) -> Iterator[tuple[Tree, float]]:
    """Yield a server, and the seconds from its start to its first right answer.

    Args:
        command: the server's command, in the foreground. cores: the cores that it may use.
        log: the file for its output.
        answers: whether it gives the right answer; called until it does.

    Raises:
        ServerStartError: it ended, or gave no answer within `timeout_s`; with the end of its log.
    """
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*pinned(cores), *command],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    tree = Tree(process, log)
    try:
        while not answers():
            if process.poll() is not None:
                raise _failed(command, log, f"it ended with exit code {process.returncode}")
            if time.monotonic() - begun > timeout_s:
                raise _failed(command, log, f"no right answer within {timeout_s:.0f} s")
            time.sleep(_PAUSE_S)
        yield tree, time.monotonic() - begun
    finally:
        tree.stop()


def pinned(cores: Sequence[int]) -> list[str]:
    """The prefix that limits a command to these cores."""
    program = shutil.which("taskset")
    if program is None:
        raise UsageError("taskset", found="it is not installed", todo="apt-get install util-linux")
    return [program, "-c", ",".join(map(str, cores))]


def _failed(command: Sequence[str], log: Path, reason: str) -> ServerStartError:
    tail = log.read_text(errors="replace").strip().splitlines()[-12:]
    return ServerStartError(" ".join(command), found=reason, todo=f"read {log}", details="\n".join(tail))


def _all_stats() -> dict[int, Stat]:
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := _stat(entry)) is not None:
            stats[int(entry.name)] = stat
    return stats


def _stat(entry: Path) -> Stat | None:
    try:
        # The name, in parentheses, may hold spaces and parentheses itself.
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # Of proc(5), less the first two: ppid 1, session 3, utime .. cstime 11 to 14, starttime 19.
    ticks = sum(map(int, fields[11:15]))
    return Stat(int(fields[1]), int(fields[3]), ticks, int(fields[19]))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def pss(pid: int) -> int:
    """The proportional set size of a process in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
