"""A running gateway's audit logs: long files are rotated, and a full disk is reported."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import IO

from tritonkit.operate.gateway.admin import GatewayAdmin
from tritonkit.operate.gateway.logs import STRANGERS_LOG

__all__ = ["AuditLogs"]

_AUDIT_BYTES, _AUDITS, _STRANGERS = 64 << 20, 8, 2
"""Size in bytes at which a log is rotated, and numbers of older files kept: audit logs, logs of unknown callers."""
_PAUSE_S = 30.0
"""Seconds between two messages about the same problem."""


class AuditLogs:
    """The audit log, and the log of unknown callers next to it.

    Args:
        admin: the gateway's interface.
        audit: the audit log; None: the gateway's standard output, whose failed writes are only counted.
    """

    def __init__(self, admin: GatewayAdmin, audit: Path | None) -> None:
        self._admin, self._audit = admin, audit
        self._known, self._untold, self._cut = 0, 0, False
        self._told_at = float("-inf")

    def look(self) -> str:
        """Rotate long logs; returns a message about failed writes, usually empty."""
        new = self._count()
        if self._audit is not None:
            strangers = self._audit.with_name(STRANGERS_LOG)
            self._admin.rotate(self._audit, _AUDIT_BYTES, _AUDITS)
            self._admin.rotate(strangers, _AUDIT_BYTES, _STRANGERS)
            if self._cut and not new:
                self._cut = not (_end_line(self._audit) and _end_line(strangers))
        self._cut = self._cut or new > 0
        self._untold += new
        if self._untold and time.monotonic() >= self._told_at + _PAUSE_S:
            message = (
                f"{self._untold} writes of its logs failed, the audit log among them: is the disk full?"
                " Requests are answered all the same"
            )
            self._untold, self._told_at = 0, time.monotonic()
            return message
        return ""

    def _count(self) -> int:
        """Number of writes that have failed since the last look."""
        failed = self._admin.unwritten()
        if failed is None:
            return 0
        # A gateway that was started again counts from 0.
        new = failed - self._known if failed >= self._known else failed
        self._known = failed
        return new


def _end_line(file: Path) -> bool:
    """End a line that a full disk has cut, so that the next one starts on its own line. Returns whether none is cut."""
    try:
        with file.open("a+b") as opened:
            if opened.tell() and _last_byte(opened) != b"\n":
                opened.write(b"\n")
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _last_byte(opened: IO[bytes]) -> bytes:
    opened.seek(-1, os.SEEK_END)
    return opened.read(1)
