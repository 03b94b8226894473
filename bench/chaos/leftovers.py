"""Leftovers of a stack on a machine: processes, shared memory, folders."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.chaos.parts import regions
from tritonkit.serve.core.supervisor import state

if TYPE_CHECKING:
    from bench.chaos.stack import Running

__all__ = ["Leftovers", "count", "end"]

_END_S = 90.0


@dataclass(frozen=True)
class Leftovers:
    """Numbers of leftovers.

    Args:
        regions: in shared memory. environments: folders of Triton's Python backend. runs: folders of runs.
        temporary: entries of the folder for temporary files. zombies: ended processes that nobody has waited for.
        processes: living processes.
    """

    regions: int
    environments: int
    runs: int
    temporary: int
    zombies: int
    processes: int


def count(running: Running) -> Leftovers:
    """Leftovers of a stack that runs, or has ended."""
    states = [state(pid) for pid in running.tree.members()]
    runs = running.root / ".tritonkit" / "run"
    return Leftovers(
        regions=len(regions(running)),
        environments=len(list(runs.glob("*/python_env_*"))),
        runs=len(list(runs.iterdir())),
        temporary=len(list(running.temporary.iterdir())),
        zombies=states.count("zombie"),
        processes=states.count("running"),
    )


def end(running: Running) -> int | None:
    """End a stack as `tritonkit down` does; return its exit code, or None if it does not end in time."""
    running.tree.members()
    running.tree.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        return running.tree.process.wait(_END_S)
    return None
