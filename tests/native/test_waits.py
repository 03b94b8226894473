"""A thread that waits as Triton's batcher does, with and without the guard's looks in between."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.guarded import build_module
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def batcher(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled."""
    native = build_module(project)
    folder = tmp_path_factory.mktemp("batcher")
    command, _ = next(iter(native._compilers(native.C, "", True)))
    source, program = Path(__file__).with_name("batcher.c"), folder / "batcher"
    native._run([*command, "-D_GNU_SOURCE", "-O2", "-pthread", "-o", str(program), str(source)], folder)
    return program


def run(batcher: Path, how: str, timeout_s: float, guard: Path | None) -> str:
    """Result of one of its waits."""
    environment = dict(os.environ)
    if guard is not None:
        environment["LD_PRELOAD"] = str(guard)
    done = subprocess.run(
        [str(batcher), how], capture_output=True, text=True, check=True, timeout=timeout_s, env=environment
    )
    return done.stdout.strip()


def test_a_wait_that_nobody_ends_looks_by_itself(guard: Path, batcher: Path) -> None:
    """A wait that nobody ends checks by itself, as in the batcher that slept while an instance became free."""
    assert run(batcher, "own", PATIENCE_S, guard) == "looked"


def test_without_the_guard_it_sleeps_on(batcher: Path) -> None:
    """An hour, of which a second is waited for."""
    with pytest.raises(subprocess.TimeoutExpired):
        run(batcher, "own", 1.0, None)


@pytest.mark.parametrize("how", ["end", "shared"])
def test_a_wait_ends_at_its_time(guard: Path, batcher: Path, how: str) -> None:
    """Not before it; and a lock that others can have is waited for in one piece, as ever."""
    assert run(batcher, how, PATIENCE_S, guard) == "timed out"
