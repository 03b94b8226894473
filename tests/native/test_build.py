"""Compiling the guard and the backends: once, in one step, with whatever compiler there is."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.native.guarded import build_module


def build(project: Path, *arguments: object, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run build.py as `make setup` does, or with another PATH."""
    script = project / "python_backends" / "native" / "build.py"
    return subprocess.run(
        [sys.executable, "-IS", str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ if path is None else {**os.environ, "PATH": path},
    )


@pytest.mark.parametrize("name", ["guard", "onnxruntime", "openvino", "python"])
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


def archive(name: str, content: bytes) -> bytes:
    """A wheel's file of libraries with this one."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:xz") as made:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        made.addfile(entry, io.BytesIO(content))
    return whole.getvalue()


def test_what_was_compiled_elsewhere_needs_no_compiler(project: Path, tmp_path: Path) -> None:
    """It is taken where it is of these sources and runs with this machine's glibc, else it is left."""
    shutil.copytree(project / "python_backends" / "native", tmp_path / "python_backends" / "native")
    native = build_module(tmp_path)
    library = native.LIBRARIES["openvino"]
    ready_made = native.PREBUILT / library.file
    note = ready_made.with_name(f"{library.file}.made-from")
    native.PREBUILT.mkdir(parents=True, exist_ok=True)
    out = tmp_path / "out" / library.file
    right = native._fingerprint(library, "")
    packed = archive(library.file, b"\0GLIBC_2.17\0")
    for content, made_from, taken in (
        (b"\0GLIBC_2.17\0", "other sources", False),
        (b"\0GLIBC_2.17\0GLIBC_9.1\0", right, False),
        (packed[:9], right, False),
        (packed[:6] + packed[10:], right, False),
        (packed[:100], right, False),
        (archive("another.so", b"\0GLIBC_2.17\0"), right, False),
        (archive(library.file, b"\0GLIBC_9.1\0"), right, False),
        (packed, "other sources", False),
        (packed, right, True),
        (b"\0GLIBC_2.17\0", right, True),
    ):
        is_packed = content.startswith(packed[:6])
        (native.PREBUILT / native.PACKED).unlink(missing_ok=True)
        ready_made.unlink(missing_ok=True)
        shutil.rmtree(out.parent, ignore_errors=True)
        (native.PREBUILT / native.PACKED if is_packed else ready_made).write_bytes(content)
        note.write_text(made_from)
        done = build(tmp_path, "--out", out.parent, "--no-download", "openvino", path="")
        assert (done.returncode == 0) is out.is_file() is taken
        assert taken or "there is no compiler" in done.stderr
    assert done.stdout == f"openvino: {out} taken from {native.PREBUILT}\n"
    assert native.is_current("openvino", out.parent)


def test_the_glibc_that_a_file_needs_is_read_from_it(tmp_path: Path) -> None:
    """The newest version among its symbols' counts, as a number."""
    native = build_module(Path(__file__).parents[2])
    file = tmp_path / "library"
    file.write_bytes(b"\0GLIBC_2.9\0GLIBC_2.35\0GLIBCXX_3.4.30\0GLIBC_PRIVATE\0GLIBC_2.2.5\0")
    assert native.needed_glibc(file) == (2, 35)
    file.write_bytes(b"")
    assert native.needed_glibc(file) == (0, 0)


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
    assert names == ["guard", "onnxruntime", "openvino", "python"]
    assert "ZeroDivisionError" in done.stderr
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "arguments", [[], ["--venv", "/nonexistent"], ["--venv", "/", "--out", "x"], ["--out", "x", "tensorrt"]]
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
