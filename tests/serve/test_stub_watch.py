"""The watch over Python stubs, with processes that look like stubs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.waiting import eventually
from tritonkit.serve.core import stub_watch
from tritonkit.serve.core.stub_watch import StubWatch
from tritonkit.serve.core.stubs import GROWN_BYTES, find_stubs
from tritonkit.serve.core.supervisor import SHARED_MEMORY
from tritonkit.serve.core.unix_http import Admin

PLANNED = 1 << 20
TICKS = 6
"""Scans from one look at the sizes of regions to the next."""


class Stubs:
    """Processes with command lines of stubs, and their regions."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._model = folder / "wide" / "1" / "model.py"
        self._model.parent.mkdir(parents=True)
        self._model.write_text("import time\ntime.sleep(600)\n")
        self._stack = stack
        self._running: dict[Path, subprocess.Popen[bytes]] = {}
        self.prefix = f"tritonkit_test_{os.getpid()}_"

    def start(self, number: int, size: int) -> None:
        """Another stub, whose region has this size."""
        region = SHARED_MEMORY / f"{self.prefix}{number}"
        region.touch()
        self._stack.callback(region.unlink, missing_ok=True)
        os.truncate(region, size)
        words = ["triton_python_backend_stub", str(self._model), region.name, "1", "1", "1", ".", "1", "wide_0_0", "."]
        process = subprocess.Popen(words, executable=sys.executable)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        while process.pid not in {stub.pid for stub in find_stubs(self.prefix)}:
            assert process.poll() is None
        self._running[region] = process

    def end_all(self) -> None:
        """End them, and wait until their regions were removed."""
        for process in self._running.values():
            process.kill()
        eventually(lambda: not any(region.exists() for region in self._running), "their regions are removed")
        self._running.clear()


@pytest.fixture
def stubs(tmp_path: Path) -> Iterator[Stubs]:
    """No stub yet."""
    with ExitStack() as stack:
        yield Stubs(tmp_path, stack)


def test_a_model_whose_usual_requests_are_large_is_reloaded_once(
    stubs: Stubs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The region grows beyond the plan: a reload. The next stub's grows as far: it keeps the memory, also later."""
    events: list[str] = []
    admin = Admin(tmp_path / "nobody.sock", "")
    watch = StubWatch(stubs.prefix, admin, {"wide": PLANNED}, lambda kind, *_: events.append(kind))
    large = PLANNED + GROWN_BYTES + 1
    stubs.start(1, large - 1)
    scan(watch)
    assert events == []
    stubs.start(2, large)
    scan(watch)
    stubs.end_all()  # as Triton does; the reload is over when their regions are gone
    stubs.start(3, large)
    scan(watch)
    monkeypatch.setattr(stub_watch, "_USUAL_S", 0.0)  # as if ten minutes went by
    scan(watch)
    assert events == ["stub_grown", "stub_lost"]
    stubs.start(4, large + GROWN_BYTES + 1)
    scan(watch)
    assert events.count("stub_grown") == 2


def scan(watch: StubWatch) -> None:
    """Look at the sizes once."""
    for _ in range(TICKS):
        watch.scan()
