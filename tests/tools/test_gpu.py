"""The command of `make gpu` on machines that lack something: one line, and the exit code that nothing was run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

PROGRAM = PROJECT / "tools" / "gpu.py"
SMI = "#!/bin/sh\necho '{output}'\nexit {code}\n"


def start(*words: str | Path, path: Path | None = None, python: tuple[str, ...] = (sys.executable,)) -> tuple[int, str]:
    """The exit code and what is printed on stderr."""
    command = [*python, *((str(PROGRAM),) if len(python) == 1 else ()), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(path or "/nowhere")}, timeout=250)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("output", "code", "words"),
    [
        (None, 0, "nvidia-smi is not there"),
        ("No devices were found", 0, "nvidia-smi says 'No devices were found'"),
        ("NVIDIA-SMI has failed because it could not talk to the driver", 9, "NVIDIA-SMI has failed"),
    ],
)
def test_a_machine_without_a_gpu(tmp_path: Path, output: str | None, code: int, words: str) -> None:
    """The driver's own words are passed on."""
    if output is not None:
        (tmp_path / "nvidia-smi").write_text(SMI.format(output=output, code=code))
        (tmp_path / "nvidia-smi").chmod(0o755)
    status, text = start("--folder", tmp_path / "run", path=tmp_path)
    assert status == 2
    (line,) = text.splitlines()
    assert line.startswith("no NVIDIA GPU: ")
    assert words in line
    assert not (tmp_path / "run").exists()


def test_another_python_is_told_which_it_needs() -> None:
    """Before anything of a newer Python is imported."""
    code = f"import runpy, sys; sys.version_info = (3, 9, 2, 'final', 0); runpy.run_path({str(PROGRAM)!r})"
    status, text = start(python=(sys.executable, "-c", code))
    assert status == 2
    assert text == (
        "tools/gpu.py: this is Python 3.9; Triton's Python backend needs 3.11 or 3.12:"
        " run this with python3.11 or python3.12\n"
    )


def test_wheels_that_are_not_there(tmp_path: Path) -> None:
    """An empty folder is a mistake, not an installation without packages."""
    status, text = start("--wheels", tmp_path, "--folder", tmp_path / "run")
    assert (status, text) == (2, f"--wheels {tmp_path}: there are no wheels; name a folder that has some\n")


@pytest.mark.parametrize("size", ["60", "60 bananas", "0MB", "MiB"])
def test_a_size_needs_a_number_and_a_unit(tmp_path: Path, size: str) -> None:
    """It is checked before anything is built or fetched."""
    status, text = start("--bundle", tmp_path / "out", "--split", size, "--folder", tmp_path / "run")
    assert status == 2
    assert text.startswith(f"{size!r} is not a size: give a number and a unit, such as 60MiB")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_said_first(small_disk: Path, tmp_path: Path) -> None:
    """The environments need 6 GB."""
    (tmp_path / "nvidia-smi").write_text(SMI.format(output="NVIDIA H200, 580.159.04, 143771 MiB, 9.0", code=0))
    (tmp_path / "nvidia-smi").chmod(0o755)
    status, text = start("--folder", small_disk / "run", path=tmp_path)
    assert status == 2
    assert text == (
        f"{small_disk / 'run'}: 0.0 GB are free, and the environments need 6 GB;"
        " free some, or name another place with --folder\n"
    )


def test_a_bundle_goes_into_an_empty_folder(tmp_path: Path) -> None:
    """Archives of two bundles never mix."""
    (tmp_path / "note").touch()
    status, text = start("--bundle", tmp_path, "--split", "60MiB", "--folder", tmp_path / "run")
    assert (status, text) == (2, f"{tmp_path} is not empty; name a new folder\n")
