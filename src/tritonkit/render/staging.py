"""Put finished folders in place of old ones, each by one rename, so that none is ever half there."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Staging", "recover"]

_COMMIT = "commit.json"
_HIDDEN = ".staging"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class Staging:
    """A folder on the repository's file system in which the next state of models is made.

    Triton takes every folder of a repository's root for a model, hidden ones too, so the staging
    folder lies beside the repository. Where the repository is a mount of its own, it lies inside
    a model's folder, where Triton ignores what is not a number.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = _place(out)

    def __enter__(self) -> Staging:
        recover(self.out)
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Ctrl-C between two models: what was decided is finished, as after a kill.
        if kind is KeyboardInterrupt and (self.folder / _COMMIT).is_file():
            _finish(self.folder, self.out)
        shutil.rmtree(self.folder, ignore_errors=True)

    def new(self, model: str) -> Path:
        """An empty folder for the next state of a model."""
        path = self.folder / model
        path.mkdir()
        return path

    def commit(self, models: Sequence[str]) -> None:
        """Put the staged models in place, in order.

        From the moment the commit record is written, a publish that is killed is finished by
        `recover`; before it, nothing has changed.
        """
        record = {name: (self.folder / name).stat().st_ino for name in models}
        draft = self.folder / f"{_COMMIT}.draft"
        draft.write_text(json.dumps(record))
        draft.rename(self.folder / _COMMIT)
        _finish(self.folder, self.out)


def recover(out: Path) -> bool:
    """Finish or undo what a killed publish left; whether there was anything."""
    # The place depends on what the repository holds, which a publish changes: look in all of them.
    found = [
        p for p in (_beside(out), out / _HIDDEN, *sorted(out.glob(f"*/{_HIDDEN}"))) if p.is_dir()
    ]
    for folder in found:
        if (folder / _COMMIT).is_file():
            _finish(folder, out)
        shutil.rmtree(folder, ignore_errors=True)
    return bool(found)


def _finish(folder: Path, out: Path) -> None:
    record: dict[str, int] = json.loads((folder / _COMMIT).read_text())
    for name, inode in record.items():
        final = out / name
        # The inode tells whether this model was already put in place before a kill.
        if not final.is_dir():
            (folder / name).rename(final)
        elif final.stat().st_ino != inode:
            _replace(folder / name, final)


def _replace(staged: Path, final: Path) -> None:
    if staged.is_relative_to(final):
        _replace_within(staged, final)
    else:
        _exchange(staged, final)


def _replace_within(staged: Path, final: Path) -> None:
    """Replace the content of the folder that hosts the staging: whole parts, the config last."""
    kept = {part.name for part in staged.iterdir()}
    for part in sorted(staged.iterdir(), key=lambda path: path.name == "config.pbtxt"):
        target = final / part.name
        if part.is_dir() and target.is_dir():
            if part.name.isdigit() and (target / "manifest.json").is_file():
                continue  # an older version, which stays as it is
            _exchange(part, target)
        else:
            part.replace(target)
    for old in final.iterdir():
        if old.name.isdigit() and old.name not in kept:
            shutil.rmtree(old)


def _exchange(first: Path, second: Path) -> None:
    """Swap two folders in one step (Linux renameat2), or in two where the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = libc.renameat2(
        _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE
    )
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
        return _beside(out)
    models = sorted(path.parent for path in out.glob("*/config.pbtxt"))
    return (models[0] if models else out) / _HIDDEN


def _beside(out: Path) -> Path:
    return out.parent / f".{out.name}.staging"
