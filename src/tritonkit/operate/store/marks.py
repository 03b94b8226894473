"""Marks of the processes that work in a store now: backups and removals, which must not overlap.

Each process first writes a mark of its own, then looks for marks of the other kind. If two begin together, at least
one sees the other, in any store with consistent listings. A backup then waits; a removal gives up.

A mark that is an hour old, or an hour ahead of the clock, is of a process that is gone. A removal deletes such a mark
before it lists the backups. The mark of a backup may be gone when its index is written, for example because its
machine slept. The backup then checks once more that all of its files are there.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Self

from tritonkit.errors import StoreBusy, StoreError
from tritonkit.operate.store.remote import Store

__all__ = ["BACKING_UP", "REMOVING", "StoreMark"]

BACKING_UP, REMOVING = "backing-up", "removing"
"""Folders of marks."""

_STALE_S, _AGAIN_S = 3600.0, 60.0
_WAIT_S, _PAUSE_S = 900.0, 1.0


class StoreMark:
    """A mark in a store that lasts as long as the block.

    Args:
        kind: the kind of work, BACKING_UP or REMOVING.
        clock: a clock in seconds since 1970, with which marks of other machines are compared.
    """

    def __init__(self, store: Store, kind: str, clock: Callable[[], float] = time.time) -> None:
        self._store, self._kind, self._clock = store, kind, clock
        self._path = f"{kind}/{secrets.token_hex(8)}"
        self._written_at = 0.0

    def __enter__(self) -> Self:
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An account that may not delete leaves it; in an hour it counts no more.
        with suppress(StoreError):
            self._store.remove(self._path)

    def renew(self) -> None:
        """Renew the mark while the work goes on; called often, it writes once a minute.

        Raises:
            StoreBusy: the last renewal is so long ago that others may have taken the work for dead.
        """
        passed_s = self._clock() - self._written_at
        if self._kind == REMOVING and not passed_s < _STALE_S / 2:
            raise StoreBusy(
                self._store.url,
                found=f"nothing was done for {passed_s:.0f} s",
                wanted="work without such a pause",
                todo="run the same command again",
            )
        if not 0 <= passed_s < _AGAIN_S:
            self._write()

    def is_there(self) -> bool:
        """Whether the mark still exists, so that nobody took the work for dead."""
        return self._path.rpartition("/")[2] in self._store.names(self._kind)

    def wait_until_none(self, kind: str, most_s: float = _WAIT_S) -> None:
        """Wait until no process marks work of this kind.

        Raises:
            StoreBusy: a process still marks it after that time.
        """
        deadline = time.monotonic() + most_s
        while names := self._others(kind):
            if time.monotonic() > deadline:
                raise StoreBusy(
                    self._store.where(names[0]),
                    found="other work is under way in the store",
                    wanted="none",
                    todo="run the same command again when it has ended",
                )
            self.renew()
            time.sleep(_PAUSE_S)

    def _others(self, kind: str) -> list[str]:
        """Valid marks of a kind; a removal deletes those of processes that are gone."""
        fresh = []
        for name in self._store.names(kind):
            path = f"{kind}/{name}"
            if self._is_fresh(path):
                fresh.append(path)
            elif self._kind == REMOVING:
                self._store.remove(path)
        return fresh

    def _is_fresh(self, path: str) -> bool:
        try:
            text = b"".join(islice(self._store.read(path), 1))  # one that is long is none
        except StoreError:  # it has just been removed
            return self._store.size_bytes(path) is not None
        try:
            # A clock that was put back leaves marks of the future, and nobody may write one that lasts.
            return abs(self._clock() - float(text)) < _STALE_S
        except ValueError:
            return True

    def _write(self) -> None:
        self._written_at = self._clock()
        self._store.write(self._path, [f"{self._written_at:.3f}".encode()])
