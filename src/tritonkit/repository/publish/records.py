"""Records next to an artifact: sealed JSON, which counts only as it was written."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from tritonkit.disk import write_whole
from tritonkit.repository.export.artifact import seal, unseal

__all__ = ["read_record", "write_record"]


def read_record(file: Path) -> dict[str, Any]:
    """The facts of a record; empty if it cannot be read."""
    try:
        return unseal(file.read_text())
    except (OSError, ValueError, KeyError, RecursionError):
        return {}


def write_record(file: Path, facts: dict[str, Any]) -> None:
    """Replace a record. Where that cannot be written, the next build does the recorded work again."""
    with contextlib.suppress(OSError):
        write_whole(file, seal(facts).encode())
