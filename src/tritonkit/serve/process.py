"""The program's side of the supervisor: it starts one server process, stops it and waits for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import ServerStartError
from tritonkit.serve.core import supervisor
from tritonkit.serve.core.stubs import find_stubs

if TYPE_CHECKING:
    from tritonkit.serve.core.launch import Launch

__all__ = ["SupervisedProcess", "describe_exit"]

_OBEYED_S = 10.0
_SUPERVISE = """import sys
sys.path.insert(0, sys.argv[1])
from core.supervisor import main
sys.path.pop(0)
main()
"""


class SupervisedProcess:
    """A process (tritonserver, Envoy) under a supervisor.

    Args:
        launch: the process to start; `{prefix}` in its arguments is replaced by the name of the shared-memory
            regions.
        log: the file for the output of the process and its stubs.

    Raises:
        ServerStartError: the program cannot be executed.

    `pid` is tritonserver's, and `prefix` begins the names of its regions. `ended` is set when nothing of
    it is left. Then `exit_code` is tritonserver's exit code (negative: the signal; None if unknown), and
    `drained` tells whether every request in flight was answered.
    """

    def __init__(self, launch: Launch, log: Path) -> None:
        self.log = log
        self.ended = threading.Event()
        self.exit_code: int | None = None
        self.drained = False
        self._lock = threading.Lock()
        # Isolated: the supervisor needs no installed package, and starts in milliseconds.
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SUPERVISE, str(Path(__file__).parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=launch.cwd,
            start_new_session=True,
        )
        self._send({"launch": launch.to_dict(), "log": str(log)})
        first = self._read()
        if "pid" not in first:
            self._close()
            raise ServerStartError(
                launch.argv[0],
                found=str(first.get("error", "its supervisor ended immediately")),
                wanted="a program that can be executed",
                todo="see what `tritonkit doctor` says",
            )
        self.pid = int(first["pid"])
        self.prefix = str(first["prefix"])
        self.supervisor_pid = self._supervisor.pid
        self._reader = threading.Thread(target=self._follow, name="tritonkit-server", daemon=True)
        self._reader.start()

    def poll(self) -> int | None:
        """The exit code, None while it runs; an unknown code counts as SIGKILL."""
        if not self.ended.is_set():
            return None
        return -signal.SIGKILL if self.exit_code is None else self.exit_code

    def stop(self, drain_s: float, finalize_s: float) -> None:
        """Tell it to answer the requests in flight, let the models finalize, and end, without waiting for it."""
        self._send({"stop": {"drain_s": drain_s, "finalize_s": finalize_s}})

    def kill(self) -> None:
        """End it now, and wait until nothing of it is left.

        A supervisor that does not respond, such as a stopped one, is killed itself, and everything below it ends too.
        """
        self._send({"kill": True})
        if not self.ended.wait(_OBEYED_S):
            self._supervisor.kill()
            self.ended.wait()

    def _send(self, order: dict[str, Any]) -> None:
        pipe = self._supervisor.stdin
        with self._lock, contextlib.suppress(OSError, ValueError):
            if pipe is not None:
                pipe.write(json.dumps(order).encode() + b"\n")
                pipe.flush()

    def _read(self) -> dict[str, Any]:
        """The supervisor's next line; empty when there will be none."""
        pipe = self._supervisor.stdout
        line = pipe.readline() if pipe is not None else b""
        message: dict[str, Any] = json.loads(line) if line else {}
        return message

    def _follow(self) -> None:
        """Wait for the end in a thread."""
        last = self._read()
        if "exit" in last:
            self.exit_code, self.drained = last["exit"], last["drained"]
        else:
            self._clear_after_supervisor()
        self._close()
        self.ended.set()

    def _clear_after_supervisor(self) -> None:
        """Clean up after a killed supervisor; the kernel has ended the server with it."""
        for stub in find_stubs(self.prefix):
            with contextlib.suppress(OSError):
                os.kill(stub.pid, signal.SIGKILL)
        supervisor.remove_regions(self.prefix)

    def _close(self) -> None:
        with self._lock:
            for pipe in (self._supervisor.stdin, self._supervisor.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        self._supervisor.wait()


def describe_exit(code: int | None) -> str:
    """The end in words: `it ended with exit code 1`, `it was ended by SIGKILL`, `it was killed with its supervisor`."""
    if code is None:
        return "it was ended together with its supervisor"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with exit code {code}"
