"""The maker of a region, and whether it is still there."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tritonkit.client.shm.owner import Owner, is_orphan


def test_own_names_are_no_orphans() -> None:
    """A pool's names are its own as long as it lives, and differ."""
    owner = Owner()
    name, other = owner.new_name(), owner.new_name()
    assert name != other
    assert not is_orphan(name)
    del owner
    gc.collect()
    assert is_orphan(name)


def test_a_dead_process_leaves_orphans() -> None:
    """The name of a region made by a process that has ended is an orphan's; a living one's is not."""
    with _maker() as (process, name):
        assert not is_orphan(name)
        process.kill()
        process.wait()
        assert is_orphan(name)


def test_a_recycled_pid_is_another_process() -> None:
    """A process with the same number that began at another time is not the maker."""
    with _maker() as (_, name):
        parts = name.split("-")
        parts[3] = str(int(parts[3]) - 1)
        assert is_orphan("-".join(parts))


@contextmanager
def _maker() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that lives as long as its standard input is open, and the name of a region it made."""
    code = (
        "import sys; from tritonkit.client.shm.owner import Owner; owner = Owner();"
        "print(owner.new_name(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def test_names_of_others_are_left_alone() -> None:
    """Regions of other programs, and of other PID namespaces, are nobody's orphans."""
    parts = Owner().new_name().split("-")
    parts[1], parts[2] = "12345", "4194303"
    assert not is_orphan("-".join(parts))
    assert not is_orphan("my_region")
    assert not is_orphan("tritonkit-1")
