"""Threads of a program that wait for each other's locks, as Triton's do when a caller leaves during an answer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.guarded import build_module
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def deadlock(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program, next to its libtritonserver.so."""
    native = build_module(project)
    folder, sources = tmp_path_factory.mktemp("deadlock"), Path(__file__).parent
    command, _ = next(iter(native._compilers(native.C, "", True)))
    core, program = folder / "libtritonserver.so", folder / "deadlock"
    common = [*command, "-D_GNU_SOURCE", "-fPIC", "-pthread"]
    native._run([*common, "-shared", "-o", str(core), str(sources / "core.c")], folder)
    clock = ["-shared", "-o", str(folder / "clock.so"), str(sources / "clock.c")]
    native._run([*common, *clock], folder)
    native._run([*common, "-o", str(program), str(sources / "deadlock.c"), str(core)], folder)
    return program


def run(deadlock: Path, timeout_s: float, **environment: str) -> subprocess.CompletedProcess[str]:
    """Until it ends."""
    return subprocess.run(
        [str(deadlock)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env=os.environ | {"LD_LIBRARY_PATH": str(deadlock.parent)} | environment,
    )


def test_who_hears_of_a_caller_gives_way_to_who_writes_an_answer(guard: Path, deadlock: Path) -> None:
    """Both come to have both locks, in this order; all is given back, and the log says it."""
    done = run(deadlock, PATIENCE_S, LD_PRELOAD=str(guard))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["answer", "left"]
    assert done.stderr == "tritonkit guard: a deadlock of Triton's gRPC streams was undone\n"


def test_a_clock_that_is_set_back_delays_nothing(guard: Path, deadlock: Path) -> None:
    """The guard looks for deadlocks by a clock that nobody sets."""
    done = run(deadlock, PATIENCE_S, LD_PRELOAD=f"{guard} {deadlock.parent / 'clock.so'}")
    assert done.stdout.split() == ["answer", "left"], done.stderr


def test_without_the_guard_they_wait_for_ever(deadlock: Path) -> None:
    """Or for a second: nothing ends it."""
    with pytest.raises(subprocess.TimeoutExpired):
        run(deadlock, 1.0)
