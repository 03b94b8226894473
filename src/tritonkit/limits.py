"""Limits of this process (setrlimit(2), `ulimit`) that are too low, for messages about failures they cause."""

from __future__ import annotations

import errno
import resource
from dataclasses import dataclass

__all__ = ["advice", "is_of_limits", "low", "low_memory", "too_low"]


@dataclass(frozen=True)
class _Limit:
    """One limit: its readable name, its option of `ulimit`, and the number above which it causes no failure."""

    number: int
    name: str
    option: str
    enough: int
    unit: str = ""


_MIB = 1 << 20
_FILES = _Limit(resource.RLIMIT_NOFILE, "open files", "-n", 1024)
_FILE_SIZE = _Limit(resource.RLIMIT_FSIZE, "size of a file", "-f", 1 << 30, "MiB")
_ADDRESSES = _Limit(resource.RLIMIT_AS, "virtual memory", "-v", 1 << 40, "MiB")
_DATA = _Limit(resource.RLIMIT_DATA, "memory", "-d", 1 << 40, "MiB")
_PROCESSES = _Limit(resource.RLIMIT_NPROC, "processes and threads", "-u", 1024)
_TIME = _Limit(resource.RLIMIT_CPU, "processor time", "-t", 1 << 40, "s")
_STACK = _Limit(resource.RLIMIT_STACK, "stack", "-s", _MIB, "MiB")
_ALL = (_FILES, _FILE_SIZE, _ADDRESSES, _DATA, _PROCESSES, _TIME, _STACK)

_BY_ERROR = {
    errno.EMFILE: (_FILES,),
    errno.EFBIG: (_FILE_SIZE,),
    errno.ENOMEM: (_ADDRESSES, _DATA),
    errno.EAGAIN: (_PROCESSES,),
}


def low(limits: tuple[_Limit, ...] = _ALL) -> str:
    """This process's low limits, which its children inherit: `open files: 20 (ulimit -n)`."""
    return ", ".join(_said(limit) for limit in limits if _soft(limit) < limit.enough)


def low_memory() -> str:
    """The limits of memory."""
    return low((_ADDRESSES, _DATA))


def too_low(files: int, file_bytes: int) -> str:
    """Limits below their thresholds, as text; empty if all have room."""
    needs = ((_FILES, files), (_FILE_SIZE, file_bytes))
    return ", ".join(_said(limit) for limit, least in needs if _soft(limit) < least)


def advice(limits: str, process: str) -> str:
    """Advice for a failure that these limits from `low` are likely to have caused."""
    return f"raise what limits {process}: {limits}" if limits else ""


def is_of_limits(error: BaseException) -> str:
    """The low limits that may have caused an error; empty for an unrelated error."""
    unmapped = isinstance(error, ImportError) and "failed to map segment" in str(error)
    if isinstance(error, MemoryError) or unmapped:
        return low_memory()
    if not isinstance(error, OSError):
        return ""
    # If not a single file may be opened, Python finds no temporary folder (ENOENT).
    limits = _BY_ERROR.get(error.errno or 0, (_FILE_SIZE,) if _soft(_FILE_SIZE) < _MIB else ())
    return low(limits)


def _soft(limit: _Limit) -> float:
    soft = resource.getrlimit(limit.number)[0]
    return float("inf") if soft == resource.RLIM_INFINITY else soft


def _said(limit: _Limit) -> str:
    soft = _soft(limit)
    size = f"{soft / _MIB:.0f} MiB" if limit.unit == "MiB" else f"{soft:.0f} {limit.unit}".strip()
    return f"{limit.name}: {size} (ulimit {limit.option})"
