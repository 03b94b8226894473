"""Processor time and limits of processes, read from a real tree of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tritonkit.machine import cores, free_memory, process_tree, tree_processor_s

_PARENT = """
import subprocess, sys
# By the counters that are read: they are whole ticks of the kernel, those of user and kernel mode each cut off.
busy = "import os\\nwhile sum(os.times()[:2]) < 0.1: pass\\nprint(flush=True)\\ninput()"
child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("busy", flush=True)
input()
child.communicate(b"\\n")
print("ended", flush=True)
input()
"""


def test_a_child_that_ends_keeps_its_processor_time() -> None:
    """A tree's processor time has the child's while it runs and after its parent has waited for it."""
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "busy\n"
        assert len(process_tree(parent.pid)) == 2
        before_s = tree_processor_s(parent.pid)
        assert before_s >= 0.1
        print(file=parent.stdin, flush=True)
        assert parent.stdout.readline() == "ended\n"
        assert process_tree(parent.pid) == [parent.pid]
        assert tree_processor_s(parent.pid) >= before_s
        parent.stdin.close()


@pytest.mark.parametrize(
    ("files", "groups", "expected"),
    [
        ({"cpu.max": "100000 100000\n"}, "0::/\n", 1),
        ({"cpu.max": "max 100000\n"}, "0::/\n", None),
        ({"pod/cpu.max": "150000 100000\n", "pod/one/cpu.max": "max 100000\n"}, "0::/pod/one\n", 1),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "", 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "1:cpu:/\n", None),
        (
            {"cpu/pod/cpu.cfs_quota_us": "100000\n", "cpu/pod/cpu.cfs_period_us": "100000\n"},
            "3:memory:/other\n2:cpu,cpuacct:/pod/one\n",
            1,
        ),
        # In a container with the host's names of groups its own group is what it sees as the root.
        ({"cpu.max": "100000 100000\n"}, "0::/system.slice/docker-1.scope\n", 1),
    ],
    ids=["v2", "v2, none", "v2, above", "v1", "v1, none", "v1, above", "host's names"],
)
def test_cores_are_those_of_the_quota(tmp_path: Path, files: dict[str, str], groups: str, expected: int | None) -> None:
    """The quota of the process's group or any group above it, rounded down, at least one; else the affinity counts."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    own = tmp_path / "groups"
    own.write_text(groups)
    allowed = len(os.sched_getaffinity(0))
    assert cores(tmp_path, own) == min(allowed, expected or allowed)
    assert cores(tmp_path, tmp_path / "missing") <= allowed


def test_free_memory_is_what_machine_and_groups_leave(tmp_path: Path) -> None:
    """The least of them; `max` is no limit, and 0 says that nothing is known."""
    meminfo, group = tmp_path / "meminfo", tmp_path / "group"
    assert free_memory(group, tmp_path / "none", meminfo) == 0
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    4096 kB\n")
    group.mkdir()
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1\n")
    assert free_memory(group, tmp_path / "none", meminfo) == 4 << 20
    (group / "memory.max").write_text("3000\n")
    (group / "memory.current").write_text("1000\n")
    assert free_memory(group, tmp_path / "none", meminfo) == 2000
