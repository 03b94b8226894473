"""The files that `--report` asks a command to write."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from tritonkit.cli.fields import command_line
from tritonkit.cli.output import note
from tritonkit.errors import UsageError

__all__ = ["this_command", "write_reports", "written_now"]


def written_now() -> str:
    """The local date and time."""
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")


def this_command() -> str:
    """The command line that repeats this run."""
    return shlex.join(["tritonkit", *command_line()])


def write_reports(folder: Path, files: Mapping[str, str]) -> None:
    """Write files by their names, and say where.

    Raises:
        UsageError: they cannot be written.
    """
    folder = folder.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        reason = f"it cannot be written: {error.strerror}"
        raise UsageError(f"--report {folder}", found=reason, wanted="a folder") from None
    note(f"reports: {folder}")
