"""The Python stubs of a server, as /proc shows them: one process per model instance."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .supervisor import SHARED_MEMORY, children, dead_run, remove_stale_regions, run_prefix

__all__ = ["GROWN_BYTES", "Stub", "clear_dead_runs", "end_stubs", "find_stubs", "grown_models"]

GROWN_BYTES = 16 << 20
"""Growth of a region beyond its plan at which its model is reloaded; one unusual batch stays below it."""

_PROGRAM = "triton_python_backend_stub"


@dataclass(frozen=True)
class Stub:
    """A stub process; `instance` is Triton's name for it, such as `digits_network_0_1`, and `region`
    its shared memory, whose name begins with the run's prefix."""

    pid: int
    model: str
    instance: str
    region: str


def find_stubs(prefix: str, proc: Path = Path("/proc")) -> tuple[Stub, ...]:
    """The living stubs of the run whose shared-memory regions begin with `prefix`.

    A stub's command line is: program, model file, region, sizes, the server's pid, its folder, a
    handle, the instance, the backend's folder (python_backend, stub_launcher.cc).
    """
    stubs = []
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if len(words) > 8 and words[0].endswith(_PROGRAM) and words[2].startswith(prefix):
            # <repository>/<model>/<version>/<file>
            stubs.append(Stub(int(folder.name), Path(words[1]).parts[-3], words[8], words[2]))
    return tuple(sorted(stubs, key=lambda stub: stub.pid))


def grown_models(stubs: Iterable[Stub], planned: Mapping[str, int], folder: Path = SHARED_MEMORY) -> dict[str, int]:
    """The models with a region far larger than planned, and the bytes of the largest.

    Triton's regions grow and never shrink, so the memory of one large request stays in use until the model is reloaded.

    Args:
        stubs: those to look at.
        planned: bytes of a region for each model; models without an entry have no limit.
        folder: where the regions are.
    """
    models: dict[str, int] = {}
    for stub in stubs:
        with contextlib.suppress(OSError):
            size = (folder / stub.region).stat().st_size
            if stub.model in planned and size > planned[stub.model] + GROWN_BYTES:
                models[stub.model] = max(size, models.get(stub.model, 0))
    return models


def end_stubs(prefix: str) -> None:
    """End the stubs that a dead server has left. In a container they become children of its first process, and stay
    zombies, which look like dead stubs, until it waits for them."""
    for stub in find_stubs(prefix):
        with contextlib.suppress(OSError):
            os.kill(stub.pid, signal.SIGKILL)
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):
            # The kernel keeps 15 characters (proc(5), comm).
            if Path(f"/proc/{pid}/comm").read_text().strip() == _PROGRAM[:15]:
                os.waitpid(pid, 0)


def clear_dead_runs(regions: Path = SHARED_MEMORY) -> None:
    """End the stubs and remove the regions of runs whose program and supervisor were both killed.

    A stub usually notices that its server has ended. It does not while it waits for a lock in shared memory
    that the server held when it died (pb_stub.cc, UpdateHealth).
    """
    for stub in find_stubs(run_prefix()):
        if dead_run(stub.region):
            with contextlib.suppress(OSError):
                os.kill(stub.pid, signal.SIGKILL)
    remove_stale_regions(regions)
