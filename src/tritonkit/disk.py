"""Atomic writes of files, and clear errors for a disk that is full or cannot be written."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tritonkit.errors import BuildError, TritonkitError
from tritonkit.limits import advice, is_of_limits
from tritonkit.text import first_line

__all__ = [
    "is_of_writing",
    "locked",
    "refused_by_system",
    "sync",
    "sync_tree",
    "try_writing",
    "unwritable",
    "write_whole",
]

_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM}
_TRIED_BYTES = 1 << 16
_PERMISSIONS = "correct its permissions, or name another place"
_DO = {
    errno.ENOSPC: "free space on that disk (df -h, df -i), and try again",
    errno.EDQUOT: "free space, or have your quota raised, and try again",
    errno.EROFS: "it is mounted read-only: name another place, or mount it for writing",
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EIO: "the disk or its network fails: the system's log (dmesg) has more",
    errno.ENFILE: "the whole system has too many open files: end what has them, or raise fs.file-max",
}


def unwritable(place: Path, error: OSError, kind: type[TritonkitError] = BuildError) -> TritonkitError:
    """The error for a folder that cannot be written, or can no longer be."""
    number, words = reason(error)
    limits = advice(is_of_limits(error), "this command")
    todo = _DO.get(number, "free space, or correct its permissions")
    return kind(str(place), found=f"it cannot be written: {words}", todo="; or ".join(filter(None, (limits, todo))))


def refused_by_system(error: OSError) -> TritonkitError | None:
    """The error for a refusal by the file system that no caller has handled; None for any other OSError."""
    number, words = reason(error)
    if not number:
        return None
    place = error.filename or error.filename2
    if isinstance(place, bytes):
        place = os.fsdecode(place)
    where = str(place) if place is not None else "standard output, or a file of this command"
    return TritonkitError(where, found=words, todo=_DO.get(number, ""))


def is_of_writing(error: Exception) -> bool:
    """Whether an error is the file system's refusal; a library that does not load is an OSError too."""
    return isinstance(error, OSError) and reason(error)[0] in _OF_WRITING


def reason(error: OSError) -> tuple[int, str]:
    """The system's error number, 0 if there is none, and its text. A partial copy of a folder has its first file's."""
    number = error.errno
    if isinstance(error, shutil.Error) and (copied := re.search(r"\[Errno (\d+)\]", str(error))):
        number = int(copied[1])
    return (number, os.strerror(number)) if number else (0, error.strerror or first_line(error))


def try_writing(*places: Path) -> None:
    """BuildError for the first folder that cannot be written.

    For exceptions of C++ libraries about a failed write, which name neither the folder nor the reason.
    """
    for place in places:
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(bytes(_TRIED_BYTES))
                file.flush()
        except OSError as error:
            raise unwritable(place, error) from error


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """A folder's lock, which ends with the process that holds it.

    Raises:
        BlockingIOError: another holds it, and `wait` is false.
        OSError: the folder cannot be opened.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def sync(place: Path) -> None:
    """Sync a file's content, or the names in a folder, to the disk.

    A file system may write a rename before the content of the renamed file. After a power failure the new name
    would then have no content.
    """
    opened = os.open(place, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        # Some network file systems cannot do this for folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)


def sync_tree(folder: Path) -> None:
    """Sync all files below a folder, then the folders, innermost first."""
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            file = Path(place, name)
            if not file.is_symlink():
                sync(file)
        sync(Path(place))


def write_whole(file: Path, content: bytes | memoryview) -> None:
    """Replace a file and sync it to the disk; after an OSError the older file is unchanged."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        unfinished.write_bytes(content)
        sync(unfinished)
        unfinished.replace(file)
        sync(file.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
