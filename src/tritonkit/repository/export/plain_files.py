"""Checked access to files of an untrusted folder: regular files, in the folder itself, of limited size.

A link in a stranger's folder may point to any file of the person who builds, and a build publishes what it reads. A
device or a pipe may never end.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

from tritonkit.errors import BuildError
from tritonkit.repository.modelspec.units import format_bytes

__all__ = ["copy_file", "plain_file", "require_room"]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_STEP = 1 << 24


def plain_file(file: Path, folder: Path, most_bytes: int | None = None) -> Path:
    """Resolved path of a file of a folder. Nothing is opened.

    Args:
        file: the file, or a link to it.
        folder: the folder that it must lie in. A link may also lead into the blobs of the cache of Hugging Face's hub,
            where the folder is a snapshot there.
        most_bytes: its largest allowed size; None for no limit.

    Raises:
        BuildError: the file is not a regular file, leads out of the folder, or is too large.
    """
    try:
        path = file.resolve()
        state = path.stat()
    except (OSError, RuntimeError) as error:  # a link that leads nowhere, or to itself
        raise _refused(file, f"it cannot be read: {_reason(error)}") from None
    link = f"a link to {file.readlink()}, " if file.is_symlink() else ""
    if not stat.S_ISREG(state.st_mode):
        kind = _KINDS.get(stat.S_IFMT(state.st_mode), "something else")
        raise _refused(file, f"{link}{kind}")
    if not any(path.is_relative_to(home) for home in _homes(folder)):
        raise _refused(file, f"{link}out of {folder}", "if it belongs there, copy it in place of the link")
    if most_bytes is not None and state.st_size > most_bytes:
        raise _refused(file, f"{format_bytes(state.st_size)}; at most {format_bytes(most_bytes)} are taken")
    return path


def copy_file(source: Path, target: Path) -> None:
    """Copy the content that a regular file has now. The copy has the usual mode.

    On file systems that can (XFS, Btrfs) both files share the content until one of them is written.

    Raises:
        BuildError: the source is not a regular file.
        OSError: the source cannot be read, or the copy cannot be written.
    """
    # Opening a pipe without a writer would block.
    opened = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as given, target.open("wb") as made:
        state = os.fstat(opened)
        if not stat.S_ISREG(state.st_mode):
            raise _refused(source, _KINDS.get(stat.S_IFMT(state.st_mode), "something else"))
        left = state.st_size
        try:
            while left > 0 and (count := os.copy_file_range(opened, made.fileno(), left)):
                left -= count
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            given.seek(state.st_size - left)
            made.seek(state.st_size - left)
        # A file that keeps growing would never be copied to its end.
        while left > 0 and (part := given.read(min(left, _STEP))):
            made.write(part)
            left -= len(part)


def require_room(place: Path, needed: int, where: str) -> None:
    """Refuse to copy more than a disk has room for.

    Raises:
        BuildError: the disk has fewer free bytes than needed.
    """
    free = shutil.disk_usage(next(folder for folder in (place, *place.parents) if folder.exists())).free
    if needed > free:
        raise BuildError(
            where,
            found=f"{format_bytes(needed)} to copy, and {format_bytes(free)} free in {place}",
            wanted="room for a copy",
            todo="free space, or choose another disk",
        )


def _homes(folder: Path) -> list[Path]:
    """The folder, and the blobs of a hub's cache to which a snapshot's links lead."""
    place = folder.resolve()
    snapshots = [folder for folder in (place, *place.parents) if folder.parent.name == "snapshots"]
    return [place, *(snapshot.parent.parent / "blobs" for snapshot in snapshots[:1])]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _refused(file: Path, found: str, todo: str = "") -> BuildError:
    return BuildError(str(file), found=found, wanted="a regular file of its folder, or a link to one", todo=todo)
