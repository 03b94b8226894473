"""The processes of a stack by the part that they are, with their memory and open files."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.processes import pss
from tritonkit.machine import process_stat
from tritonkit.serve.core.supervisor import SHARED_MEMORY, run_prefix, state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.chaos.stack import Running

__all__ = ["UP", "Member", "Sample", "members", "regions", "sample"]

UP = "up"
_SUPERVISOR = "core.supervisor"
_STUB = "triton_python_backend_stub"
_PROGRAMS = {"tritonserver": "tritonserver", "redis-server": "redis", "prometheus": "prometheus", _STUB: "stub"}


@dataclass(frozen=True, order=True)
class Member:
    """A process of the stack.

    Args:
        part: `gateway`, `rest`, `tritonserver`, `stub`, `limiter`, `redis`, `prometheus`, `up`, or one of these with
            `supervisor of ` before it.
        replica: the run's folder of a replica's process; empty: the process belongs to none.
        instance: Triton's name of a stub's instance; `counting` of the Redis that the limiter uses.
        pid: its number.
    """

    part: str
    replica: str
    instance: str
    pid: int

    @property
    def place(self) -> tuple[str, str, str]:
        """The part's identity, whatever its process."""
        return self.part, self.replica, self.instance

    @property
    def kind(self) -> str:
        """The part that stops when this process ends."""
        return self.part.removeprefix("supervisor of ")


@dataclass(frozen=True)
class Sample:
    """Bytes and open files of each part, all its processes together, at a moment.

    Args:
        at_s: since the start of the load. shared_bytes: of this stack's regions in shared memory.
    """

    at_s: float
    pss_bytes: dict[str, int]
    files: dict[str, int]
    shared_bytes: int


def members(running: Running) -> list[Member]:
    """Living processes of a stack, found by their ancestry alone; each supervisor is named after its program."""
    member_of = {pid: _named(pid, running) for pid in running.tree.members() if state(pid) == "running"}
    named = {pid: member for pid, member in member_of.items() if member is not None}
    redis = running.counting.process
    if redis.poll() is None:
        named[redis.pid] = Member("redis", "", "counting", redis.pid)
    parents = {_parent(pid): member for pid, member in named.items()}
    for pid in member_of:
        child = parents.get(pid)
        if child is not None and any(_SUPERVISOR in word for word in _words(pid)):
            part = f"supervisor of {child.part}"
            named[pid] = Member(part, child.replica, child.instance, pid)
    return sorted(named.values())


def regions(running: Running) -> list[Path]:
    """Shared memory of its servers, those included that have ended: a name has its supervisor's number."""
    beginnings = tuple(f"{run_prefix()}{pid}_" for pid in running.tree.ever)
    return [file for file in SHARED_MEMORY.iterdir() if file.name.startswith(beginnings)]


def sample(running: Running, at_s: float) -> Sample:
    """Memory and files that its parts hold now, and this process, which has the callers."""
    pss_bytes: Counter[str] = Counter()
    files: Counter[str] = Counter()
    own = Member("callers", "", "", os.getpid())
    for member in [*members(running), own]:
        pss_bytes[member.part] += pss(member.pid)
        files[member.part] += _files(member.pid)
    return Sample(at_s, dict(pss_bytes), dict(files), _size(regions(running)))


def _named(pid: int, running: Running) -> Member | None:
    words, folder = _words(pid), _folder(pid)
    program = Path(words[0]).name
    replica = folder.name if folder.parent.name == "run" else ""
    if pid == running.tree.process.pid:
        return Member(UP, "", "", pid)
    if program == _STUB:
        instance = words[8] if len(words) > 8 else ""
        return Member("stub", _folder(_parent(pid)).name, instance, pid)
    if program in _PROGRAMS:
        return Member(_PROGRAMS[program], replica, "", pid)
    if program.startswith("envoy"):
        return Member("rest" if replica else "gateway", replica, "", pid)
    return Member("limiter", "", "", pid) if "limiter" in words else None


def _words(pid: int) -> Sequence[str]:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        text = ""
    return [*text.split("\0"), "", ""]


def _folder(pid: int) -> Path:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return Path()


def _parent(pid: int) -> int:
    try:
        return int(process_stat(Path(f"/proc/{pid}"))[1])
    except OSError:
        return 0


def _files(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def _size(files: Sequence[Path]) -> int:
    size = 0
    for file in files:
        with contextlib.suppress(OSError):
            size += file.stat().st_size
    return size
