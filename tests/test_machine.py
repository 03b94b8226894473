"""What processes take of the machine, read from a real tree of processes."""

from __future__ import annotations

import subprocess
import sys

from tritonkit.machine import process_tree, tree_processor_s

_PARENT = """
import subprocess, sys
busy = "import time\\nwhile time.process_time() < 0.1: pass\\nprint(flush=True)\\ninput()"
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
