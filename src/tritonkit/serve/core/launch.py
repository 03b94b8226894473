"""Starts a tritonserver with its limits, and keeps its key, files and shared memory from other users."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .keys import PLACEHOLDER

__all__ = ["ENVIRONMENTS", "SCHEDULING_VARIABLE", "UNPACKED", "Launch", "guard_in", "has_guard"]

ENVIRONMENTS = "python_env_*"
"""Folders of Triton's Python backend for models' environments, one for each server, in its working directory."""
UNPACKED = "unpacked"
"""Folder in a server's working directory into which stubs unpack compiled packages of PyTorch."""
_UNPACK_VARIABLE = "TRITONKIT_UNPACK_DIR"  # python_backends/backends/pytorch/pytorch_unpacking.py
_GUARD = Path("lib") / "tritonkit" / "guard.so"
_PR_SET_PDEATHSIG = 1
_MIB = 1 << 20
# glibc returns blocks of more than 128 KiB to the kernel and requests them again. Images and tensors have that size, so
# decode_image spent more time on page faults than on pixels (mallopt(3)).
_VARIABLES = {
    "MALLOC_MMAP_THRESHOLD_": str(8 * _MIB),
    "MALLOC_TRIM_THRESHOLD_": str(16 * _MIB),
    "MALLOC_TOP_PAD_": str(1 * _MIB),
    # From 1.29 on, ONNX Runtime's wheels report to Microsoft which models are loaded.
    "ORT_DISABLE_TELEMETRY": "1",
}
"""Environment variables of every server, unless its launch sets them."""

SCHEDULING_VARIABLE = "TRITONKIT_SCHEDULING"
"""Set to `other`, in a launch's environment or in this process's, it keeps the kernel's default policy."""


def guard_in(environment: Path) -> Path | None:
    """The native guard that `python_backends/native/build.py` put into a server environment."""
    file = environment / _GUARD
    return file if file.is_file() else None


def has_guard(pid: int) -> bool:
    """Whether a process has loaded the guard."""
    try:
        return f"/{_GUARD.name}\n" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


@dataclass(frozen=True)
class Launch:
    """A process to start.

    Args:
        argv: its command line, with PLACEHOLDER where the key goes.
        env: its environment variables.
        cwd: its working directory, which only its owner can enter; it creates its sockets there.
        key: the admin key; empty if argv has no PLACEHOLDER.
        grpc_port: the port on which the guard limits messages; 0 for none.
        message_bytes: the largest gRPC message.
        file_bytes: the largest file, and so the largest region in /dev/shm, that it and its stubs may make.
            A request that needs more fails alone, and no region has grown; 0 sets no limit.
        guard: the native guard; without it the key is visible in the arguments, messages can have up
            to 2 GiB, and other users of the machine can read the regions.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    key: str = ""
    grpc_port: int = 0
    message_bytes: int = 0
    file_bytes: int = 0
    guard: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `Launch(**facts)` restores it."""
        return asdict(self)

    def start(self, output: int | None = None) -> subprocess.Popen[bytes]:
        """Start it; the output of it and its children goes to the descriptor `output`.

        It gets SIGKILL when this process ends.

        Raises:
            OSError: it cannot be executed.
        """
        argv, kept_open = list(self.argv), []
        env = {**_VARIABLES, _UNPACK_VARIABLE: str(Path(self.cwd) / UNPACKED), **self.env}
        if self.guard:
            # The guard makes Triton create them here (folders.c); a killed server has left its own.
            for folder in Path(self.cwd).glob(ENVIRONMENTS):
                shutil.rmtree(folder, ignore_errors=True)
            env |= {
                "LD_PRELOAD": " ".join(filter(None, [self._preload(), env.get("LD_PRELOAD", "")])),
                "TRITONKIT_GUARD_GRPC_PORT": str(self.grpc_port),
                "TRITONKIT_GUARD_MAX_MESSAGE_BYTES": str(self.message_bytes),
            }
        if self.guard and self.key:
            kept_open.append(_filled_pipe(self.key))
            env["TRITONKIT_GUARD_KEY_FD"] = str(kept_open[0])
        else:
            argv = [word.replace(PLACEHOLDER, self.key) for word in argv]
        try:
            return subprocess.Popen(
                argv,
                env=env,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                pass_fds=kept_open,
                preexec_fn=self._limit,
            )
        finally:
            for descriptor in kept_open:
                os.close(descriptor)

    def _preload(self) -> str:
        """The guard's path in a form for ld.so(8), which splits names at spaces and colons, and ignores those
        that it cannot find."""
        if not set(self.guard) & set(" :"):
            return self.guard
        copy = Path(self.cwd) / _GUARD.name
        shutil.copyfile(self.guard, copy)
        return f"./{copy.name}"

    def _limit(self) -> None:
        """Prepare the new process before its program runs."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.umask(0o077)
        # A core dump would contain requests and the key.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if "other" not in (source.get(SCHEDULING_VARIABLE) for source in (self.env, os.environ)):
            _schedule_as_batch()
        if self.file_bytes:
            # With the signal ignored, the write or truncation itself fails (setrlimit(2)), and Triton reports that.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            # Only the soft limit: a stub lifts it while it unpacks a package.
            most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            least = self.file_bytes if most == resource.RLIM_INFINITY else min(self.file_bytes, most)
            resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))


def _schedule_as_batch() -> None:
    """Set a policy for this process and its children under which a woken thread does not preempt the running one.

    A request wakes several threads on its way through Triton, and under the default policy each may
    preempt the one that was about to wake the next (sched(7), SCHED_BATCH; needs no privilege).
    """
    if os.sched_getscheduler(0) == os.SCHED_OTHER:
        # A sandbox may forbid it; then the server is only slower.
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _filled_pipe(text: str) -> int:
    """The reading end of a pipe that holds `text`, which must fit the pipe's buffer."""
    reader, writer = os.pipe()
    try:
        os.write(writer, text.encode())
    finally:
        os.close(writer)
    return reader
