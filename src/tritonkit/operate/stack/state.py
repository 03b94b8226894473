"""The state that a running stack publishes to other commands, in one file."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import ServerError, UsageError
from tritonkit.machine import process_stat
from tritonkit.serve.core.keys import write_private

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.operate.stack.values import StackPart

__all__ = ["FOLDER", "StateFile", "clear_state", "read_state", "stop_running", "write_state"]

FOLDER = Path(".tritonkit") / "stack"
_FILE = "state.json"
_PAUSE_S = 0.1


def write_state(root: Path, owner: int, gateway: str, parts: Sequence[StackPart]) -> None:
    """Write the stack's current state.

    Args:
        owner: the ID of the process that watches over the stack.
        gateway: the gateway's address, `host:port`.
    """
    facts = {"owner": owner, "began": _began(owner), "gateway": gateway, "parts": [asdict(part) for part in parts]}
    write_private(root / FOLDER / _FILE, json.dumps(facts))


class StateFile:
    """The state of the stack that this process watches over, written every second."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reason = ""

    def write(self, gateway: str, parts: Sequence[StackPart]) -> str:
        """Write the state. Returns the text to report, which is empty unless writing has begun or ceased to fail."""
        before = self._reason
        try:
            write_state(self._root, os.getpid(), gateway, parts)
            self._reason = ""
        except OSError as error:
            self._reason = error.strerror or str(error)
        if self._reason == before:
            return ""
        if self._reason:
            return f"its state cannot be written, other commands read the last one: {self._reason}"
        return "its state can be written again"


def read_state(root: Path) -> dict[str, Any] | None:
    """The state of a project's stack: `owner`, `gateway`, `parts`; None if none runs."""
    try:
        facts: dict[str, Any] = json.loads((root / FOLDER / _FILE).read_text())
        owner, began = int(facts["owner"]), facts["began"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    owner_began = _began(owner)
    return facts if owner_began is not None and owner_began == began else None


def clear_state(root: Path) -> None:
    """Remove the state: nothing runs any more."""
    (root / FOLDER / _FILE).unlink(missing_ok=True)


def stop_running(root: Path, most_s: float) -> None:
    """Ask the stack of a project to end, and wait for it.

    Raises:
        UsageError: no stack runs.
        ServerError: the stack does not end in time.
    """
    state = read_state(root)
    if state is None:
        raise UsageError(f"the stack of {root}", found="none runs", wanted="one that `tritonkit up` started")
    owner = int(state["owner"])
    os.kill(owner, signal.SIGTERM)
    deadline = time.monotonic() + most_s
    while _began(owner) == state["began"]:
        if time.monotonic() > deadline:
            raise ServerError(
                f"the stack of {root}",
                found=f"process {owner} has not ended after {most_s:g} s",
                todo="wait for requests that are under way, or once more: tritonkit down",
            )
        time.sleep(_PAUSE_S)


def _began(pid: int) -> int | None:
    """The start time of a process, which tells it from a later one with the same ID (proc(5), starttime); None if it
    has ended, even as a zombie."""
    try:
        words = process_stat(Path("/proc") / str(pid))
        return None if words[0] == "Z" else int(words[19])
    except (OSError, ValueError, IndexError):
        return None
