"""Contents of a repository: every file that a server may read, with its hash."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tritonkit.errors import UsageError
from tritonkit.repository.publish.integrity import Progress, open_file, read_manifest, versions
from tritonkit.repository.publish.staging import MODEL_NAME

__all__ = ["SHA256", "Contents", "StoredFile", "is_file_of_a_model", "read_contents"]

SHA256 = re.compile(r"[0-9a-f]{64}")

_IGNORED = "__pycache__"
_CHUNK = 1 << 20
_LONGEST_PATH = 1024
_LONGEST_NAME = 255


@dataclass(frozen=True)
class StoredFile:
    """One file.

    Args:
        path: its path below the model's folder, with parts joined by `/`.
        sha256: the SHA-256 of its content, in hexadecimal.
        size_bytes: the size of its content.
    """

    path: str
    sha256: str
    size_bytes: int


Contents = Mapping[str, tuple[StoredFile, ...]]
"""Model -> its files, in the order of their paths."""


def read_contents(
    repository: Path, models: Sequence[str] = (), *, deep: bool = True, progress: Progress = lambda done, total: None
) -> Contents:
    """The files of the models in all their versions.

    Hidden files and `__pycache__` are left out, as in `verify`; folders without a file are not models.

    Args:
        repository: a folder of models.
        models: names of the models to read; all by default.
        deep: whether to hash every file; else a manifest's hash is believed for a file of the right size.
        progress: called with the number of bytes read so far and in all.

    Raises:
        UsageError: there is no such repository or model, a model's name is not valid, or an entry is not a file.
    """
    if not repository.is_dir():
        raise UsageError(str(repository), found="there is no such folder", todo="tritonkit build")
    try:
        names = [_checked(repository, name) for name in models] or [
            path.name for path in sorted(repository.iterdir()) if path.is_dir() and path.name[0] != "."
        ]
        files = {name: list(_files(repository / name)) for name in names}
        total = sum(file.stat().st_size for paths in files.values() for file in paths)
        count = _Counter(total, progress)
        return {
            name: _model(repository / _checked(repository, name), paths, deep, count)
            for name, paths in files.items()
            if paths or name in models
        }
    except OSError as error:
        raise UsageError(
            str(error.filename or repository),
            found=f"it cannot be read: {error.strerror}",
            wanted="files that this user may read",
        ) from error


class _Counter:
    """Adds up the bytes that were read, and reports progress."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def add(self, size_bytes: int) -> None:
        self._done += size_bytes
        self._progress(min(self._done, self._total), self._total)


def _checked(repository: Path, name: str) -> str:
    if not MODEL_NAME.fullmatch(name):
        raise UsageError(
            str(repository / name),
            found=f"{name!r} is no name of a model",
            wanted="a letter, then letters, digits, _ and -",
            todo="rename it, or move it out of the repository",
        )
    return name


def _model(folder: Path, files: Sequence[Path], deep: bool, count: _Counter) -> tuple[StoredFile, ...]:
    if not files:
        raise UsageError(f"model {folder.name!r}", found=f"{folder.parent} does not hold it")
    published = {} if deep else _published(folder)
    entries = (_entry(folder, file, published, count) for file in files)
    return tuple(sorted(entries, key=lambda entry: entry.path))


def is_file_of_a_model(path: str) -> bool:
    """Whether a path of a backup or signature stays inside a model's folder, and is one that `read_contents` gives."""
    parts = path.split("/")
    return (
        len(path) <= _LONGEST_PATH
        and path.isprintable()
        and "\\" not in path
        and all(0 < len(part.encode("utf-8", "replace")) <= _LONGEST_NAME for part in parts)
        and not any(part.startswith(".") or part == _IGNORED for part in parts)
    )


def _entry(folder: Path, file: Path, published: Mapping[str, tuple[str, int]], count: _Counter) -> StoredFile:
    path = file.relative_to(folder).as_posix()
    if not is_file_of_a_model(path):
        raise UsageError(str(file), found="its name cannot be kept", todo="rename it")
    size_bytes = file.stat().st_size
    digest, published_bytes = published.get(path, ("", -1))
    if size_bytes == published_bytes:
        count.add(size_bytes)
        return StoredFile(path, digest, size_bytes)
    return _hashed(path, file, count)


def _hashed(path: str, file: Path, count: _Counter) -> StoredFile:
    digest, size_bytes = hashlib.sha256(), 0
    with open_file(file) as stream:
        while part := stream.read(_CHUNK):
            digest.update(part)
            size_bytes += len(part)
            count.add(len(part))
    return StoredFile(path, digest.hexdigest(), size_bytes)


def _published(folder: Path) -> dict[str, tuple[str, int]]:
    """Path -> hash and size, from the manifests of a model's folder and of its versions."""
    published: dict[str, tuple[str, int]] = {}
    for place in (PurePosixPath(), *(PurePosixPath(str(number)) for number in versions(folder))):
        facts = read_manifest(folder / place) or {"files": {}}
        for name, digest in facts["files"].items():
            size_bytes = facts.get("sizes", {}).get(name)
            if SHA256.fullmatch(digest) and isinstance(size_bytes, int):
                published[str(place / name)] = (digest, size_bytes)
    return published


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        inner = [name for name in folders if name[0] != "." and name != _IGNORED]
        folders[:] = inner
        for name in sorted([*files, *inner]):
            file = Path(place, name)
            if name[0] == "." or (name in inner and not file.is_symlink()):
                continue
            if not stat.S_ISREG(file.stat().st_mode):
                raise UsageError(
                    str(file),
                    found="it is a link to a folder, or no file",
                    wanted="files and folders: only these can be copied and signed",
                    todo="put what it leads to in its place",
                )
            yield file
