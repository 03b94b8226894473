"""The lines of Triton's log that explain a failure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

__all__ = ["read_tail", "relevant"]

_HEAD = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ +([\w.]+:\d+\]) *")
_TRACE = re.compile(r"Traceback|^At:$|^ {2,}|\w*(Error|Exception|Interrupt)\b.*:|Aborted|Segmentation")
# A machine without a GPU logs these at every start; they explain nothing.
_NOISE = re.compile(
    r"CudaDriverHelper|pinned (system )?memory|pinned_memory_manager|DCGM|NVML|unable to create stream"
    r"|TRITONBACKEND_ModelInstance|has no file named"
)
_TAIL_BYTES = 1 << 20


def relevant(text: str, models: Collection[str] = (), limit: int = 24) -> list[str]:
    """The last `limit` lines worth reading: errors, warnings, tracebacks, and lines that name a model of
    `models`; never Triton's tables. Quoted line breaks become real ones, and time stamps are removed."""
    messages: list[str] = []
    names = re.compile(r"\b(" + "|".join(map(re.escape, models)) + r")\b") if models else None
    for line in text.splitlines():
        if not line.strip() or line[0] in "|+" or _NOISE.search(line):
            continue
        head = _HEAD.match(line)
        if (
            (head and head[1] in "EWF")
            or _TRACE.search(line[head.end() :] if head else line)
            or (names and names.search(line))
        ):
            messages += _unquoted(_HEAD.sub(r"\1 \2 ", line))
    return _once(messages)[-limit:]


def read_tail(file: Path, offset: int = 0) -> str:
    """The part of a log's last MiB that comes after `offset`; empty if there is no log."""
    try:
        with file.open("rb") as log:
            size = file.stat().st_size
            # A log that is shorter now was started again.
            log.seek(max(offset if offset <= size else 0, size - _TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:
        return ""


def _unquoted(line: str) -> list[str]:
    """A message without its quotes, split into the lines in which it was written."""
    return [part for part in line.replace('] "', "] ").rstrip('"').split("\\n") if part.strip(" ;")]


def _once(lines: list[str]) -> list[str]:
    """The distinct lines, each at its last position: one failure is logged by every layer it passes."""
    return list(reversed(dict.fromkeys(reversed(lines))))
