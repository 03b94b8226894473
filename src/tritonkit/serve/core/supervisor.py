"""Run one tritonserver, and leave nothing behind, however the program that requested it ends.

The supervisor runs in its own session, so that a terminal's Ctrl-C does not reach it. It reads orders as JSON
lines from one pipe and reports events to another. The end of the first pipe, or a new parent process, means
that the program has ended: then the server gets SIGTERM, and later SIGKILL.

    in    {"launch", "log"} once, then {"stop": {"drain_s", "finalize_s"}} or {"kill": true}
    out   {"pid", "prefix"}, and at last {"exit", "drained"}

It cleans up after Triton: stubs, which become its children when the server ends (it is a "child subreaper",
prctl(2)), and the regions in /dev/shm whose names begin with this run's prefix. If the supervisor itself is
killed, the server is killed with it (PR_SET_PDEATHSIG) and the program cleans up. If both are killed, the
next start does (`stubs.clear_dead_runs`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from .launch import Launch

__all__ = [
    "LOG_BYTES",
    "SHARED_MEMORY",
    "children",
    "dead_run",
    "main",
    "remove_regions",
    "remove_stale_regions",
    "rotate",
    "run_prefix",
    "state",
]

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where POSIX shared memory is on Linux)

_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.1
_ABANDONED = {"drain_s": 3.0, "finalize_s": 2.0}
_DRAINED = "All models are stopped, unloading models"

LOG_BYTES = 16 << 20
"""The size at which a log is moved to `NAME.1`, replacing the previous one; less than `Launch.file_bytes`."""


def main() -> None:
    """Supervise one run; standard input and output are the two pipes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    os.umask(0o077)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    orders = Orders()
    start = orders.wait_for_start()
    if start is None:
        return
    prefix = f"{run_prefix()}{os.getpid()}_{secrets.token_hex(4)}_"
    log = Path(start["log"])
    server = _launch(start, prefix, log)
    if server is None:
        return
    _say({"pid": server.pid, "prefix": prefix})
    drained = _run(server, orders, log, signals)
    _end_children()
    remove_regions(prefix)
    _say({"exit": server.returncode, "drained": drained})


class Orders:
    """Lines of standard input, read without waiting."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self._buffer = b""
        self._closed = False

    def wait_for_start(self) -> dict[str, Any] | None:
        """The first order; None if the program ended without giving one."""
        while not self.abandoned:
            order = self.next()
            if order is not None:
                return order
        return None

    @property
    def abandoned(self) -> bool:
        """Whether the program has ended. A child that it forked may still hold the pipe, so a new parent
        process counts too."""
        return (self._closed and b"\n" not in self._buffer) or os.getppid() != self._parent

    def next(self) -> dict[str, Any] | None:
        """The next order; None after a tick without one."""
        if b"\n" not in self._buffer:
            if self._closed:
                time.sleep(_TICK_S)
            elif select.select([0], [], [], _TICK_S)[0]:
                read = os.read(0, 1 << 16)
                self._buffer += read
                self._closed = not read
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        order: dict[str, Any] = json.loads(line)
        return order


def _launch(start: dict[str, Any], prefix: str, log: Path) -> subprocess.Popen[bytes] | None:
    facts = start["launch"]
    argv = [word.replace("{prefix}", prefix) for word in facts["argv"]]
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return Launch(**{**facts, "argv": argv}).start(descriptor)
    except OSError as error:
        _say({"error": str(error)})
        return None
    finally:
        os.close(descriptor)


def _run(server: subprocess.Popen[bytes], orders: Orders, log: Path, signals: list[int]) -> bool:
    """Wait until the server has ended, by itself or as ordered; return whether every request was answered."""
    stopping: Stopping | None = None
    while server.poll() is None:
        order = orders.next()
        if order is not None and "kill" in order:
            server.kill()
        elif stopping is not None:
            stopping.step()
        elif order is not None and "stop" in order:
            stopping = Stopping(server, log, **order["stop"])
        elif signals or orders.abandoned:
            stopping = Stopping(server, log, **_ABANDONED)
        else:
            rotate(log)
    return stopping is not None and (stopping.drained or server.returncode == 0)


def rotate(log: Path, at_bytes: int = LOG_BYTES) -> None:
    """Copy a log that has reached `at_bytes` to `NAME.1` and empty it; its writers go on appending."""
    with contextlib.suppress(OSError):
        if log.stat().st_size >= at_bytes:
            shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)


class Stopping:
    """A server that is ending: first its requests in flight, then the models' `finalize`, then the process.

    Triton checks once a second whether it is done, spends more than a second on each instance, and
    waits forever for a model whose stub has died. Once its log says that no request is left, only
    the stubs' `finalize` remains; after the last one the server can be killed.
    """

    def __init__(self, server: subprocess.Popen[bytes], log: Path, drain_s: float, finalize_s: float) -> None:
        self.drained = False
        self._server = server
        self._log = log
        self._seen = log.stat().st_size
        self._finalize_s = finalize_s
        self._deadline = time.monotonic() + drain_s
        server.terminate()

    def step(self) -> None:
        """Check once; end the server when its time is up."""
        if not self.drained and _DRAINED in self._new_text():
            self.drained = True
            self._deadline = time.monotonic() + self._finalize_s
        finalized = self.drained and not any(state(pid) == "running" for pid in children(self._server.pid))
        if finalized or time.monotonic() > self._deadline:
            self._server.kill()

    def _new_text(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._seen)
            return log.read().decode(errors="replace")


def children(parent: int) -> list[int]:
    """The processes whose parent is `parent`, including zombies (proc(5))."""
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdecimal() and _status(folder)[1:] == [str(parent)]
    ]


def state(pid: int) -> str:
    """`running`, `zombie` (ended, and its parent has not waited for it) or `gone`."""
    letter = _status(Path("/proc") / str(pid))[0]
    return {"Z": "zombie", "X": "zombie", "": "gone"}.get(letter, "running")


def _status(folder: Path) -> list[str]:
    """State letter and parent of a process; the letter is empty if there is no such process."""
    try:
        # The name in parentheses may hold anything, even spaces.
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
    except OSError:
        return [""]


def remove_regions(prefix: str, folder: Path = SHARED_MEMORY) -> None:
    """Remove the shared-memory regions whose names begin with `prefix`."""
    for region in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            region.unlink()


def remove_stale_regions(folder: Path = SHARED_MEMORY) -> None:
    """Remove the regions of runs whose supervisor has ended."""
    for region in folder.glob(f"{run_prefix()}*"):
        if dead_run(region.name):
            remove_regions(region.name, folder)


def run_prefix() -> str:
    """The prefix of the region names of all runs. The PID namespace is part of it: containers that share /dev/shm
    number their processes independently."""
    namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"tritonkit_{''.join(filter(str.isdecimal, namespace))}_"


def dead_run(region: str) -> bool:
    """Whether the supervisor in a region's name has ended."""
    number = region.removeprefix(run_prefix()).partition("_")[0]
    return number.isdecimal() and state(int(number)) != "running"


def _end_children() -> None:
    """Kill the processes that the server left, and those that they leave, until there are none."""
    while True:
        for pid in children(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _say(message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
