"""The Python stubs of a server, as /proc shows them: one process per model instance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Stub", "find_stubs"]

_PROGRAM = "triton_python_backend_stub"


@dataclass(frozen=True)
class Stub:
    """A stub process; `instance` is Triton's name for it, such as `digits_network_0_1`."""

    pid: int
    model: str
    instance: str


def find_stubs(prefix: str, proc: Path = Path("/proc")) -> tuple[Stub, ...]:
    """The living stubs of the run whose shared-memory regions begin with `prefix`.

    A stub's command line is: program, model file, region, sizes, the server's pid, its folder, a
    handle, the instance, the backend's folder (python_backend, stub_launcher.cc).
    """
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if len(words) > 8 and words[0].endswith(_PROGRAM) and words[2].startswith(prefix):
            # <repository>/<model>/<version>/<file>
            found.append(Stub(int(folder.name), Path(words[1]).parts[-3], words[8]))
    return tuple(sorted(found, key=lambda stub: stub.pid))
