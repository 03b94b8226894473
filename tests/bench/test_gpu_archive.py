"""The archives of a bundle: written in pieces of a size, checked, and put together again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu.archive import ArchiveError, join, split

SIZE = 40_000


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """A bundle of a program, a file that spans several archives, and an empty one."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "large").write_bytes(bytes(range(256)) * 500)
    (source / "empty").touch()
    (source / "program").write_text("#!/bin/sh\necho it runs\n")
    (source / "program").chmod(0o755)
    names = {"large": "a/large", "empty": "empty", "program": "bin/program"}
    parts = split([(source / name, place) for name, place in names.items()], tmp_path / "bundle", SIZE)
    assert len(parts) == 4
    assert all(part.stat().st_size <= SIZE for part in parts)
    return tmp_path / "bundle"


def test_the_files_come_out_as_they_went_in(archives: Path, tmp_path: Path) -> None:
    """join.py next to the archives is all that the other machine needs; programs stay programs."""
    out = tmp_path / "out"
    command = [sys.executable, "-I", str(archives / "join.py"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"3 files in {out}" in done.stdout
    assert (out / "a" / "large").read_bytes() == bytes(range(256)) * 500
    assert (out / "empty").read_bytes() == b""
    assert subprocess.run([out / "bin" / "program"], capture_output=True, text=True, check=True).stdout == "it runs\n"


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda part: part.write_bytes(part.read_bytes()[:-1] + b"x"), "part-0002.tar is damaged"),
        (lambda part: part.write_bytes(part.read_bytes()[:100]), "part-0002.tar is damaged"),
        (Path.unlink, "part-0002.tar is missing: copy it again"),
        (lambda part: (part.parent / "archives.json").write_text("{"), "archives.json cannot be read"),
    ],
)
def test_a_damaged_archive_is_named_and_nothing_is_unpacked(
    archives: Path, tmp_path: Path, harm: object, words: str
) -> None:
    """Every hash is checked first; the exit code says that nothing was done."""
    assert callable(harm)
    harm(archives / "part-0002.tar")
    command = [sys.executable, str(archives / "join.py"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_same_files_give_the_same_archives(tmp_path: Path) -> None:
    """Neither times nor owners are inside."""
    file = tmp_path / "file"
    hashes = []
    for folder in ("one", "two"):
        file.write_text("content")
        split([(file, "file")], tmp_path / folder, SIZE)
        hashes.append((tmp_path / folder / "archives.json").read_text())
        file.unlink()
    assert hashes[0] == hashes[1]


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    """Archives of two bundles never lie in one folder."""
    (tmp_path / "note").touch()
    with pytest.raises(ArchiveError, match="is not empty: it has note"):
        split([], tmp_path, SIZE)


def test_a_full_disk_is_said_before_anything_is_written(small_disk: Path, archives: Path, tmp_path: Path) -> None:
    """Both ways say what is free and what is needed."""
    large = tmp_path / "large"
    large.write_bytes(bytes(2_000_000))
    with pytest.raises(ArchiveError, match="1 MB are free, and 2 MB are needed"):
        split([(large, "large")], small_disk / "bundle", SIZE)
    assert list((small_disk / "bundle").iterdir()) == []
    split([(large, "large")], tmp_path / "second", SIZE)
    with pytest.raises(ArchiveError, match="are free"):
        join(tmp_path / "second", small_disk / "out")
    assert list((small_disk / "out").iterdir()) == []
