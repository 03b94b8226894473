"""One folder per run: the log, and the copied backends."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from tritonkit.errors import ServerStartError

__all__ = ["KEEP", "clear", "is_owned", "new_run_dir", "runs_folder"]

KEEP = 5
"""Runs whose logs stay."""


def runs_folder(root: Path) -> Path:
    """The folder of a project's runs."""
    return root / ".tritonkit" / "run"


def new_run_dir(root: Path) -> Path:
    """A new `<root>/.tritonkit/run/TIME-XXXX`, readable by this user alone; old ones are removed.

    Raises:
        ServerStartError: the folder cannot be written.
    """
    runs = runs_folder(root)
    try:
        runs.mkdir(parents=True, exist_ok=True)
        _forget_old(runs)
        made = tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=runs)
    except OSError as error:
        raise ServerStartError(
            str(runs), found=f"it cannot be written: {error.strerror or error}",
            todo="free space, or serve a repository whose folder this user may write to",
        ) from error  # fmt: skip
    return Path(made)


def clear(run_dir: Path) -> None:
    """Remove everything but the log."""
    shutil.rmtree(run_dir / "backends", ignore_errors=True)
    for entry in run_dir.iterdir():
        if not entry.name.startswith("server.log"):
            entry.unlink(missing_ok=True)


def _forget_old(runs: Path) -> None:
    """Remove all runs but the latest; one whose owner lives is in use, however old."""
    ended = [path for path in sorted(runs.iterdir()) if not is_owned(path)]
    for path in ended[: -KEEP + 1]:
        shutil.rmtree(path, ignore_errors=True)


def is_owned(run_dir: Path) -> bool:
    """Whether the server of a run is still there."""
    try:
        os.kill(int((run_dir / "owner").read_text()), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
