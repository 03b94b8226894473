"""Index of the runs of a user's servers in all projects: a file for each run, in the user's cache folder.

With it, a command outside of the project finds a server's key. The files name folders and hold no key.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tritonkit.serve.core.keys import write_private

__all__ = ["forget_run", "listed_runs", "note_run"]


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tritonkit" / "runs"


def note_run(run_dir: Path) -> None:
    """Record a run that has begun. If the cache folder cannot be written, only its project finds the run."""
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for entry in folder.iterdir():
            if not _named(entry).is_dir():  # of a server that was killed, and forgotten since
                entry.unlink(missing_ok=True)
        write_private(folder / run_dir.name, f"{run_dir.absolute()}\n")


def forget_run(run_dir: Path) -> None:
    """Record that the run has ended."""
    with contextlib.suppress(OSError, RuntimeError):
        (_folder() / run_dir.name).unlink(missing_ok=True)


def listed_runs() -> Iterator[Path]:
    """Folders of recorded runs that belong to this user, the latest first."""
    with contextlib.suppress(OSError, RuntimeError):
        for entry in sorted(_folder().iterdir(), reverse=True):
            run_dir = _named(entry)
            with contextlib.suppress(OSError):
                if run_dir.stat().st_uid == os.getuid():
                    yield run_dir


def _named(entry: Path) -> Path:
    try:
        return Path(entry.read_text(encoding="utf-8").strip() or os.devnull)
    except (OSError, ValueError):
        return Path(os.devnull)
