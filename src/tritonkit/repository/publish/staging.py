"""Put finished folders in place of old ones, each by one rename, so that no folder is ever incomplete."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from tritonkit.disk import sync, sync_tree, write_whole
from tritonkit.errors import PublishError

__all__ = ["MODEL_NAME", "Staging", "recover"]

MODEL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,300}")
"""The pattern of a published folder's name: a spec's name, `_` and a step's."""

_COMMIT = "commit.json"
_PARTS = "parts.json"
_HIDDEN = ".staging"
_MOST_BYTES = 1 << 20
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class Staging:
    """A folder on the repository's file system in which the next state of models is made.

    Triton takes every folder of a repository's root for a model, hidden ones too, so the staging folder lies next to
    the repository. If the repository is a mount point, it lies inside a model's folder, where Triton ignores names that
    are not numbers.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = _place(out)

    def __enter__(self) -> Staging:
        recover(self.out)
        # No other user may write the files that the next start would put in place.
        self.folder.mkdir(mode=0o700, parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Ctrl-C between two models: the decided changes are completed, as after a kill.
        if kind is KeyboardInterrupt and (self.folder / _COMMIT).is_file():
            _finish(self.folder, self.out)
        _clear(self.folder)

    def new(self, model: str) -> Path:
        """An empty folder for the next state of a model."""
        path = self.folder / model
        path.mkdir()
        return path

    def commit(self, models: Sequence[str]) -> None:
        """Put the staged models in place, in order.

        After the commit record is written, `recover` finishes a publish that is killed; before that, nothing has
        changed. Each step is on the disk before the next.
        """
        record = {name: (self.folder / name).stat().st_ino for name in models}
        sync_tree(self.folder)
        sync(self.folder.parent)
        write_whole(self.folder / _COMMIT, json.dumps(record).encode())
        _finish(self.folder, self.out)


def recover(out: Path) -> bool:
    """Finish or undo a publish that was killed; return whether there was anything to do.

    PublishError, with nothing moved, if the folder is not what a publish of tritonkit leaves.
    """
    # The place depends on the repository's content, which a publish changes: look in all of them.
    places = [_next_to(out), out / _HIDDEN, *sorted(out.glob(f"*/{_HIDDEN}"))]
    # A model's folder that is a link leads out of the repository, and nothing is staged there.
    staged = [place for place in places if place.is_dir() and not place.parent.is_symlink()]
    for folder in staged:
        _refuse_untrusted(folder, out)
    for folder in staged:
        if (folder / _COMMIT).exists():
            _finish(folder, out)
        _clear(folder)
    return bool(staged)


def _clear(folder: Path) -> None:
    """Remove a staging folder, its record first: a record must not outlive a part of the folder."""
    with contextlib.suppress(OSError):
        (folder / _COMMIT).unlink(missing_ok=True)
        sync(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _refuse_untrusted(folder: Path, out: Path) -> None:
    """Refuse a staging folder of another owner: it may hold models that are served next."""
    state = folder.lstat()
    if stat.S_ISLNK(state.st_mode):
        raise _not_ours(folder, folder, "it is a symbolic link")
    if state.st_uid not in (os.geteuid(), out.stat().st_uid):
        raise _not_ours(folder, folder, f"it belongs to user {state.st_uid}")
    if state.st_mode & stat.S_IWOTH:
        raise _not_ours(folder, folder, "every user may write into it")


def _not_ours(folder: Path, where: Path, found: str) -> PublishError:
    return PublishError(
        str(where),
        found=found,
        wanted="the remains of a killed publish: names of models, and a folder for each",
        todo=f"look at {folder} and remove it: the served versions are still in place",
    )


def _read_record(folder: Path, out: Path) -> dict[str, int]:
    """Inodes of the staged folders by model. PublishError if a name or folder leads anywhere else."""
    file = folder / _COMMIT
    record = _read_numbers(file, folder)
    for name, inode in record.items():
        if not MODEL_NAME.fullmatch(name):
            raise _not_ours(folder, file, f"{name!r}: {inode!r} is not a model and its inode")
        staged, final = folder / name, out / name
        for path in (staged, final):
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                raise _not_ours(folder, path, "it is a symbolic link, or no folder")
        if not staged.is_dir() and not _is_in_place(final, inode):
            raise _not_ours(folder, staged, "it is missing")
    return record


def _read_numbers(file: Path, folder: Path) -> dict[str, int]:
    """A record of names and inodes. PublishError if it is not one."""
    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _MOST_BYTES:
            raise ValueError("a link or no file, or too large")
        record = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        raise _not_ours(folder, file, "it is not a record of a publish") from None
    if not isinstance(record, dict):
        raise _not_ours(folder, file, "it is not a record of a publish")
    for name, inode in record.items():
        if type(inode) is not int:
            raise _not_ours(folder, file, f"{name!r}: {inode!r} is not a name and its inode")
    return record


def _is_in_place(final: Path, inode: int) -> bool:
    """Whether a model was already put in place before a kill."""
    return final.is_dir() and final.stat().st_ino == inode


def _finish(folder: Path, out: Path) -> None:
    for name, inode in _read_record(folder, out).items():
        final = out / name
        if not final.is_dir():
            (folder / name).rename(final)
        elif not _is_in_place(final, inode):
            _replace(folder / name, final)
        sync(out)
    sync(folder)


def _replace(staged: Path, final: Path) -> None:
    if staged.is_relative_to(final):
        _replace_within(staged, final)
    else:
        _exchange(staged, final)


def _replace_within(staged: Path, final: Path) -> None:
    """Replace the content of the folder that hosts the staging: whole parts, the config last."""
    parts = _parts(staged)
    for name in sorted(parts, key=lambda name: name == "config.pbtxt"):
        part, target = staged / name, final / name
        if not part.exists() or (target.exists() and target.stat().st_ino == parts[name]):
            continue  # put in place before a kill
        if part.is_dir() and target.is_dir():
            _exchange(part, target)
        else:
            part.replace(target)
        sync(final)
    for old in final.iterdir():
        if old.name.isdigit() and old.name not in parts and not old.is_symlink():
            shutil.rmtree(old)


def _parts(staged: Path) -> dict[str, int]:
    """Inodes of a model's staged parts by name, recorded before the first is moved. A recovery must neither move such a
    part back nor take it for a leftover."""
    file = staged.parent / _PARTS
    if not file.exists():
        inodes = {path.name: path.stat().st_ino for path in staged.iterdir()}
        write_whole(file, json.dumps(inodes).encode())
    parts = _read_numbers(file, staged.parent)
    for name in parts:
        if not name or "/" in name or name in (".", ".."):
            raise _not_ours(staged.parent, file, f"{name!r} is not a name in a folder")
    return parts


def _exchange(first: Path, second: Path) -> None:
    """Swap two folders in one step (Linux renameat2), or in two where the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = libc.renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    if code == 0:
        return
    problem = ctypes.get_errno()
    if problem not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(problem, os.strerror(problem), str(second))
    aside = first.with_name(f"{first.name}.old")
    second.rename(aside)
    first.rename(second)
    aside.rename(first)


def _place(out: Path) -> Path:
    if not out.exists() or out.stat().st_dev == out.parent.stat().st_dev:
        return _next_to(out)
    configs = out.glob("*/config.pbtxt")
    models = sorted(path.parent for path in configs if not path.parent.is_symlink())
    return (models[0] if models else out) / _HIDDEN


def _next_to(out: Path) -> Path:
    return out.parent / f".{out.name}.staging"
