"""The servers that tests start, counted from outside: nothing in the package has to know.

Every process inherits the environment of the test that started it, in which pytest names the test. A thread looks at
new processes ten times a second, so a `tritonserver` that ends within a tenth of a second is not counted, and neither
is one in a container.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import Counter
from pathlib import Path

PROGRAM = "tritonserver"
RUN = "TEST_COUNTS_RUN"
"""The variable by which the processes of one run are told from those of others."""
LOOK_S = 0.1
YOUNG = 20
"""Looks after which a process is not expected to become another program any more."""


class Starts(threading.Thread):
    """Counts the servers of this run's tests, by file of tests, until it is stopped."""

    def __init__(self) -> None:
        super().__init__(name="test-starts", daemon=True)
        self._mark = f"{RUN}={secrets.token_hex(8)}"
        self._looks: dict[int, int] = {}
        self._counted: Counter[str] = Counter()
        self._over = threading.Event()

    def start(self) -> None:
        """Mark this process's environment, and begin."""
        os.environ[RUN] = self._mark.partition("=")[2]
        super().start()

    def run(self) -> None:
        """Look at new processes until the end."""
        while not self._over.wait(LOOK_S):
            self._look()

    def stop(self) -> Counter[str]:
        """End it; gives the numbers of servers by file of tests."""
        self._over.set()
        self.join()
        return self._counted

    def _look(self) -> None:
        """Look at the processes that are new enough to matter."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - a Path for each is slow
        self._looks = {pid: self._looks.get(pid, 0) for pid in pids}
        for pid, looks in self._looks.items():
            if looks < YOUNG:
                self._looks[pid] = looks + 1
                if test := self._test_of(Path(f"/proc/{pid}")):
                    self._counted[test] += 1
                    self._looks[pid] = YOUNG

    def _test_of(self, process: Path) -> str:
        """The file of the test that started a process; "" where it is not a server of this run."""
        try:
            if (process / "exe").readlink().name != PROGRAM:
                return ""
            variables = (process / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return ""
        named = [value for value in variables if value.startswith("PYTEST_CURRENT_TEST=")]
        return named[0].partition("=")[2].split("::")[0] if named and self._mark in variables else ""
