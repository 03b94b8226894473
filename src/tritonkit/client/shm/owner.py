"""Names of regions say which process made them, by PID namespace, PID and start time.

A server keeps a region until it is unregistered, even if its maker was killed. A later client on the machine then
looks the maker up.
"""

from __future__ import annotations

import os
import re
import secrets
from functools import cache
from itertools import count
from pathlib import Path
from weakref import WeakSet

__all__ = ["Owner", "is_orphan"]

_NAME = re.compile(r"tritonkit-(\d+)-(\d+)-(\d+)-(\d+)-[0-9a-f]{32}")
_numbers = count(1)


class Owner:
    """The maker of regions: one pool in one process."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        _owners.add(self)

    def new_name(self) -> str:
        """A new name, which cannot be guessed."""
        pid = os.getpid()
        return f"tritonkit-{_namespace()}-{pid}-{_started(pid)}-{self.number}-{secrets.token_hex(16)}"


_owners: WeakSet[Owner] = WeakSet()


def is_orphan(name: str) -> bool:
    """Whether a region of this name was made on this machine by a process that has ended; False when in doubt."""
    match = _NAME.fullmatch(name)
    if match is None:
        return False
    namespace, pid, started, number = map(int, match.groups())
    if namespace == 0 or namespace != _namespace():
        return False
    if pid == os.getpid() and started == _started(pid):
        return all(owner.number != number for owner in list(_owners))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _started(pid) not in (0, started)


@cache
def _namespace() -> int:
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _started(pid: int) -> int:
    """The start of the process, in clock ticks since the machine's; 0 if there is no such process."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return 0
    return int(after_name.split()[19])
