"""Threads that send requests for a model with a bound, against a library that counts concurrent ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.native.guarded import build_module
from tests.waiting import PATIENCE_S


def test_no_request_is_lost_and_none_too_many_is_under_way(project: Path, guard: Path, tmp_path: Path) -> None:
    """Whether they are answered, invalid, too late or cancelled; a stop refuses those that wait."""
    native, sources = build_module(project), Path(__file__).parent
    command, _ = next(iter(native._compilers(native.C, "", True)))
    core, program = tmp_path / "libtritonserver.so", tmp_path / "frontend"
    common = [*command, "-D_GNU_SOURCE", "-O1", "-fPIC", "-pthread"]
    native._run([*common, "-shared", "-o", str(core), str(sources / "triton.c")], tmp_path)
    native._run([*common, "-o", str(program), str(sources / "frontend.c"), str(core)], tmp_path)
    done = subprocess.run(
        [str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": str(guard)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["1 answered", "3 answered", "7 refused"]
