"""Compiling the guard and the backends: once, in one step, with whatever compiler there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.guarded import build_module


def build(project: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run build.py as `make setup` does."""
    script = project / "python_backends" / "native" / "build.py"
    return subprocess.run(
        [sys.executable, "-IS", str(script), *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["guard", "onnxruntime", "openvino"])
def test_a_current_file_is_left_alone(project: Path, tmp_path: Path, name: str) -> None:
    """The second time nothing is compiled; a file from other sources is made again."""
    native = build_module(project)
    folder = tmp_path / native.PLACE
    out = folder / native.LIBRARIES[name].file
    note = folder / f"{out.name}.made-from"
    folder.mkdir(parents=True)
    out.write_bytes(b"as compiled")
    note.write_text(native._fingerprint(native.LIBRARIES[name], ""))
    assert build(project, "--venv", tmp_path, name).stdout == f"{name}: {out} is current\n"
    assert out.read_bytes() == b"as compiled"
    note.write_text("of other sources")
    assert not native.is_current(name, folder)


def test_every_source_belongs_to_a_library(project: Path) -> None:
    """A file that no library names would be compiled into none."""
    native = build_module(project)
    folder = project / "python_backends" / "native"
    named = {
        file
        for library in native.LIBRARIES.values()
        for pattern in (*library.sources, *library.headers)
        for file in folder.glob(pattern)
    }
    assert named == {file for file in folder.rglob("*") if file.suffix in (".c", ".cpp", ".h")}


def test_a_compiler_that_fails_leaves_the_old_file(project: Path, tmp_path: Path) -> None:
    """The command's own words, exit code 3, and what was there stays; the others are tried too."""
    out = tmp_path / "guard.so"
    out.write_bytes(b"old")
    done = build(project, "--out", tmp_path, "--compiler", f"{sys.executable} -c 1/0")
    assert done.returncode == 3
    names = [line.partition(":")[0] for line in done.stderr.splitlines() if "not compiled" in line]
    assert names == ["guard", "onnxruntime", "openvino"]
    assert "ZeroDivisionError" in done.stderr
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--venv", "/nonexistent"], ["--venv", "/", "--out", "x"], ["--out", "x", "tensorrt"]],
)
def test_wrong_arguments_are_explained(project: Path, arguments: list[str]) -> None:
    """Exit code 2 and the usage, no traceback."""
    done = build(project, *arguments)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_a_place_that_cannot_be_written_is_explained(project: Path, tmp_path: Path) -> None:
    """Exit code 3 and the file's name, no traceback."""
    (tmp_path / "file").touch()
    done = build(project, "--out", tmp_path / "file", "guard")
    assert done.returncode == 3
    assert done.stderr.startswith(f"guard: not compiled: {tmp_path}/file")
