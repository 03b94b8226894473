"""Files of backups on a disk that several processes share: each is fetched once, and verified whenever it is used.

A file is `blobs/AB/HASH`, as in a store. The process that fetches it holds `locks/AB` until it is whole; until
then it is in `unfinished/`. Nothing in the cache is trusted or required: a file that cannot be
kept or read is fetched as without a cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tritonkit.operate.store.contents import StoredFile
from tritonkit.repository.publish.integrity import open_file

__all__ = ["FileCache", "open_cache"]

Fetch = Callable[[], Iterator[bytes]]
"""Function that yields a file's content from a store, and raises an error at its end if the content is wrong."""

_CHUNK = 1 << 20
_LEFT_S = 86400.0
"""Age at which an unfinished file counts as left by a killed process."""


@dataclass
class FileCache:
    """A folder with files of backups.

    Args:
        folder: the cache's folder, on a disk that others may share.
        limit_bytes: the limit of the size of all files in it.
        needed: hashes of files that are not removed to make room.
        given_bytes: the number of bytes that came out of the cache.
        problem: the reason why a file, or all files, could not be kept; empty: none.
    """

    folder: Path
    limit_bytes: int
    needed: frozenset[str] = frozenset()
    given_bytes: int = 0
    problem: str = ""
    _sizes: dict[str, int] = field(default_factory=dict)

    def copy(self, entry: StoredFile, target: IO[bytes], fetch: Fetch) -> None:
        """Write a file's content to `target`: out of the cache, or fetched, and then kept."""
        with self._locked(entry.sha256) as alone:
            if self._give(entry, target):
                return
            if alone:
                self._sweep(f"{entry.sha256}.*", 0)
            kept = _Kept(self, entry) if self._has_room(entry) else None
            try:
                for part in fetch():
                    target.write(part)
                    if kept is not None:
                        kept.write(part)
                if kept is not None:
                    kept.keep()
            finally:
                if kept is not None:
                    kept.close()

    def prune(self) -> int:
        """Remove the least recently used files until the rest is within the limit; returns their number."""
        self._sweep("*", _LEFT_S)
        self._look()
        return self._make_room(0)

    def path(self, sha256: str) -> Path:
        """Path of a file, which may not exist."""
        return self.folder / "blobs" / sha256[:2] / sha256

    def _give(self, entry: StoredFile, target: IO[bytes]) -> bool:
        """Write a kept file to `target`, if it is valid; else remove it and leave `target` as before."""
        file, begin = self.path(entry.sha256), target.tell()
        try:
            opened = open_file(file)
        except OSError:  # mostly: it is not there
            return False
        digest, size_bytes = hashlib.sha256(), 0
        with opened:
            while part := _read(opened):
                size_bytes += len(part)
                digest.update(part)
                target.write(part)
        if size_bytes == entry.size_bytes and digest.hexdigest() == entry.sha256:
            self.given_bytes += size_bytes
            with suppress(OSError):
                os.utime(file)
            return True
        target.seek(begin)
        target.truncate()
        self._sizes.pop(entry.sha256, None)
        with suppress(OSError):
            file.unlink()
        return False

    @contextmanager
    def _locked(self, sha256: str) -> Iterator[bool]:
        """Hold the lock of files with the same beginning of the hash. Yields False if there can be no locks: then two
        processes may fetch one file."""
        with ExitStack() as stack:
            alone = False
            try:
                lock = stack.enter_context(_open_lock(self.folder / "locks" / sha256[:2]))
                fcntl.flock(lock, fcntl.LOCK_EX)
                alone = True
            except OSError as error:
                self._problem(error)
            yield alone

    def _look(self) -> None:
        self._sizes = {}
        for file in self.folder.glob("blobs/*/*"):
            with suppress(OSError):
                self._sizes[file.name] = file.stat().st_size

    def _has_room(self, entry: StoredFile) -> bool:
        stays = sum(self._sizes[name] for name in self._sizes.keys() & self.needed)
        if stays + entry.size_bytes <= self.limit_bytes:
            self._make_room(entry.size_bytes)
            return True
        self.problem = f"{self.folder}: the models need more than its {self.limit_bytes >> 20} MiB"
        return False

    def _make_room(self, size_bytes: int) -> int:
        excess = sum(self._sizes.values()) + size_bytes - self.limit_bytes
        removed = 0
        for file in sorted(map(self.path, self._sizes.keys() - self.needed), key=_used_s):
            if excess <= 0:
                break
            with suppress(OSError):
                file.unlink()
            excess -= self._sizes.pop(file.name)
            removed += 1
        return removed

    def _sweep(self, names: str, age_s: float) -> None:
        """Remove unfinished files of killed processes."""
        for file in self.folder.glob(f"unfinished/{names}"):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime >= age_s:
                    file.unlink()

    def _problem(self, error: OSError) -> None:
        self.problem = f"{self.folder}: {error.strerror or error}"


def _read(opened: IO[bytes]) -> bytes:
    """The next part; empty if the disk fails, so that the hash does not match."""
    try:
        return opened.read(_CHUNK)
    except OSError:
        return b""


class _Kept:
    """A file on its way into a cache. If that fails, it is not kept, and nothing else happens."""

    def __init__(self, cache: FileCache, entry: StoredFile) -> None:
        self._cache, self._entry = cache, entry
        self._path = cache.folder / "unfinished" / f"{entry.sha256}.{secrets.token_hex(8)}"
        self._file: IO[bytes] | None = None
        with self._failing():
            self._file = self._path.open("xb")

    def write(self, part: bytes) -> None:
        """Write a part of the file."""
        with self._failing():
            if self._file is not None:
                self._file.write(part)

    def keep(self) -> None:
        """Keep the file: it is whole."""
        with self._failing():
            if self._file is not None:
                self._file.close()
                file = self._cache.path(self._entry.sha256)
                file.parent.mkdir(exist_ok=True)
                self._path.replace(file)
                self._cache._sizes[self._entry.sha256] = self._entry.size_bytes

    def close(self) -> None:
        """Remove an unfinished file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._cache._problem(error)
            self.close()
            self._file = None


def _open_lock(file: Path) -> IO[bytes]:
    """Open or make a file to lock; a pipe in its place is an error instead of a wait."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
    return open(file, "rb", opener=lambda path, _: os.open(path, flags, 0o644))


def _used_s(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def open_cache(folder: Path, limit_bytes: int, needed: Iterable[str]) -> FileCache:
    """The cache in a folder, which is made if it is missing; if it cannot be used, `problem` has the reason.

    Args:
        needed: hashes of the files that are about to be used.
    """
    cache = FileCache(folder, limit_bytes, frozenset(needed))
    try:
        for name in ("blobs", "locks", "unfinished"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        cache._problem(error)
    cache._look()
    return cache
