"""Runs a program that may never end, such as one that asks a GPU's driver.

A process inside a system call of a driver that hangs cannot be killed, so nothing here waits for its end. This module
needs only the standard library.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence

__all__ = ["run_probe"]


def run_probe(
    command: Sequence[str], within_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with what it writes.

    Args:
        command: the program and its arguments.
        within_s: the time that it has; then it is killed, and left alone.
        environment: its environment variables; by default this process's.

    Raises:
        TimeoutError: it did not end in time.
        OSError: it cannot be executed.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        errors="replace",
        env=environment,
    )
    try:
        output, errors = process.communicate(timeout=within_s)
    except BaseException as error:
        _abandon(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise TimeoutError(f"no answer within {within_s:g} s") from None
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _abandon(process: subprocess.Popen[str]) -> None:
    """Kill a process, and let a thread of its own wait until the kernel lets go of it."""
    process.kill()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    threading.Thread(target=process.wait, name="abandoned-probe", daemon=True).start()
