"""Limits that are too low: the message names the limit, its number and the process."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import failed
from tests.repository.optimize.small_specs import RELU, onnx_file
from tritonkit.limits import is_of_limits


def limited(limit: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command below a limit of its shell."""
    shell = f'{limit}; exec "{sys.executable}" -m tritonkit.cli "$@"'
    return subprocess.run(
        ["/bin/bash", "-c", shell, "tritonkit", *words], capture_output=True, text=True, check=False, cwd=cwd
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [("ulimit -n 20", "open files: 20 (ulimit -n)"), ("ulimit -f 0", "size of a file: 0 MiB (ulimit -f)")],
)
def test_no_server_is_started_below_a_limit_that_it_inherits(root: Path, limit: str, words: str) -> None:
    """Before anything is written or started."""
    (root / "model_repository").mkdir()
    error = failed(limited(limit, "serve", cwd=root), 4)
    assert f"tritonserver: a limit that it inherits from this shell is too low: {words}" in error
    assert not (root / ".tritonkit").exists()


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("ulimit -n 6", "open files: 6 (ulimit -n)"),
        ("ulimit -f 0", "size of a file: 0 MiB (ulimit -f)"),
        ("ulimit -v 90000", "virtual memory: 88 MiB (ulimit -v)"),
    ],
)
def test_a_build_below_a_limit_names_it(root: Path, limit: str, words: str) -> None:
    """Not only what failed: nobody sees a limit in `Too many open files`."""
    folder = root / "models" / "relu"
    folder.mkdir()
    (folder / "m.onnx").write_bytes(onnx_file(RELU, ["batch", 4]))
    (folder / "model.yaml").write_text("name: relu\nnetwork: {onnx: m.onnx}\n")
    done = limited(limit, "build", cwd=root)
    assert done.returncode, done.stdout
    assert "Traceback" not in done.stderr
    assert f"raise what limits this command: {words}" in done.stderr


def test_other_errors_have_nothing_to_do_with_limits() -> None:
    """A full disk, a permission."""
    assert is_of_limits(OSError(errno.ENOSPC, "no space")) == ""
    assert is_of_limits(ValueError("x")) == ""
