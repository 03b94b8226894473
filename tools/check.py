"""Whether every generated file is up to date: `python tools/check.py`

deploy/kubernetes is sized for the models whose configuration is tracked. Models that somebody has built in the same
repository have no part in that comparison. All checks run; the exit code is 1 where one fails.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


def tracked(repository: Path) -> list[Path]:
    """The models of a repository whose configuration git tracks; all of them outside a clone or without git."""
    words = ["git", "ls-files", "-z", "--", "*/config.pbtxt"]
    listed = b""
    with contextlib.suppress(FileNotFoundError):
        listed = subprocess.run(words, cwd=repository, capture_output=True, check=False).stdout
    names = {Path(name).parts[0] for name in os.fsdecode(listed).split("\0") if name}
    return [folder for folder in sorted(repository.iterdir()) if folder.name in names or not names]


def link(models: list[Path], folder: Path) -> None:
    """Make a repository of these models alone."""
    for model in models:
        (folder / model.name).symlink_to(model)


def main() -> int:
    """Run every check."""
    commands = [
        ["-m", "tritonkit", "build", "--check"],
        ["-m", "tritonkit", "dashboard", "--check"],
        ["-m", "tritonkit", "deploy", "--check", "--repository"],
    ]
    with tempfile.TemporaryDirectory() as folder:
        link(tracked(PROJECT / "model_repository"), Path(folder))
        commands[-1].append(folder)
        codes = [subprocess.run([sys.executable, *words], cwd=PROJECT, check=False).returncode for words in commands]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
