"""A folder as archives of a chosen size with their hashes, and the way back. Standard library only.

This file travels with the archives: `python3 join.py FOLDER` next to them checks all hashes and unpacks them there.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

__all__ = ["ArchiveError", "join", "split"]

LIST = "archives.json"
_BLOCK = 1 << 20
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python before 3.11.4 has no filters; the hashes say that nobody else's names are inside."""


class ArchiveError(Exception):
    """Archives cannot be written, or are not as they were written: the text says which, and what to do."""


class _Parts(io.RawIOBase):
    """A stream into files of a size, with the hash of each."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder, self._size = folder, size
        self._left = 0
        self._file: io.BufferedWriter | None = None
        self.hashes: dict[str, hashlib._Hash] = {}

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write into the present file, and into the next where that is full."""
        view = memoryview(data)
        while view:
            if not self._left:
                self._next()
            piece, view = view[: self._left], view[self._left :]
            assert self._file is not None  # noqa: S101 - opened above
            self._file.write(piece)
            self.hashes[Path(self._file.name).name].update(piece)
            self._left -= len(piece)
        return len(data)

    def _next(self) -> None:
        if self._file is not None:
            self._file.close()
        name = f"part-{len(self.hashes):04}.tar"
        self._file = (self._folder / name).open("wb")
        self.hashes[name] = hashlib.sha256()
        self._left = self._size

    def close(self) -> None:
        """Close the present file."""
        if self._file is not None:
            self._file.close()
        super().close()


def split(files: Iterable[tuple[Path, str]], folder: Path, size: int) -> list[Path]:
    """Write files, each with its name inside, into archives of at most `size` bytes, and join.py next to them.

    Raises:
        ArchiveError: the disk has too little room, or the folder holds something else.
    """
    pairs = list(files)
    folder.mkdir(parents=True, exist_ok=True)
    if strangers := [path.name for path in folder.iterdir()]:
        raise ArchiveError(f"{folder} is not empty: it has {strangers[0]}; name a new folder")
    need = sum(path.stat().st_size + 2048 for path, _ in pairs)
    _need_room(folder, need)
    parts = _Parts(folder, size)
    # Bare headers, so that the same files give the same hashes on every machine.
    with parts, tarfile.open(fileobj=parts, mode="w|", bufsize=_BLOCK, format=tarfile.PAX_FORMAT) as tar:
        for path, name in pairs:
            tar.add(path, name, recursive=False, filter=_plain)
    hashes = {name: digest.hexdigest() for name, digest in parts.hashes.items()}
    (folder / LIST).write_text(json.dumps({"bytes": need, "parts": hashes}, indent=1) + "\n")
    shutil.copyfile(__file__, folder / "join.py")
    return [folder / name for name in hashes]


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def _need_room(folder: Path, need: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < need:
        raise ArchiveError(
            f"{folder}: {free / 1e6:,.0f} MB are free, and {need / 1e6:,.0f} MB are needed; free some, or name another"
        )


def join(source: Path, folder: Path) -> int:
    """Check every archive in `source`, and unpack all of them into `folder`; return the number of files.

    Raises:
        ArchiveError: an archive is missing or damaged, nothing is unpacked; or the disk has too little room.
    """
    try:
        content = json.loads((source / LIST).read_text())
        parts, need = dict(content["parts"]), int(content["bytes"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"{source / LIST} cannot be read: copy the whole folder of the bundle again") from error
    for name, digest in parts.items():
        _check(source / name, digest)
    folder.mkdir(parents=True, exist_ok=True)
    _need_room(folder, need)
    with ExitStack() as stack:
        stream = stack.enter_context(_Chain(source / name for name in parts))
        tar = stack.enter_context(tarfile.open(fileobj=io.BufferedReader(stream, _BLOCK), mode="r|"))
        count = 0
        for entry in tar:
            tar.extract(entry, folder, **_FILTER)
            count += 1
    return count


def _check(part: Path, digest: str) -> None:
    try:
        with part.open("rb") as file:
            present = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArchiveError(f"{part} is missing: copy it again") from error
    if present != digest:
        raise ArchiveError(f"{part} is damaged, its hash is {present[:12]}, not {digest[:12]}: copy it again")


class _Chain(io.RawIOBase):
    """Several files one after the other as one stream."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._blocks = self._read(paths)
        self._rest = b""

    @staticmethod
    def _read(paths: Iterable[Path]) -> Iterator[bytes]:
        for path in paths:
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    yield block

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill some of a buffer."""
        self._rest = self._rest or next(self._blocks, b"")
        piece, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def main() -> int:
    """Join the archives next to this file; 2 where they are damaged or do not fit."""
    parser = argparse.ArgumentParser(description="Check the archives next to this file, and unpack them.")
    parser.add_argument("folder", type=Path, help="the folder to unpack into; it is made if it is not there")
    try:
        folder = parser.parse_args().folder
        count = join(Path(__file__).resolve().parent, folder)
    except (ArchiveError, OSError, tarfile.TarError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{count} files in {folder}; next: cd {folder} && python3 tools/gpu.py --wheels wheels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
