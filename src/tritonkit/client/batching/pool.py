"""One batcher for each kind of call that can share a request."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tritonkit.client.batching.batcher import Batcher

__all__ = ["BatcherPool"]


class BatcherPool:
    """Batchers by key, made when first needed; of unused ones the longest unused go, beyond `limit`.

    A key names everything that must be equal in one request: version, outputs, priority, and the
    arrays' `layout`. A batcher with callers in it is never dropped, so there are never two for one
    key.
    """

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._made: dict[Hashable, Batcher] = {}

    def __len__(self) -> int:
        return len(self._made)

    def get(self, key: Hashable) -> Batcher | None:
        """The batcher of this key, if there is one; it may be retired before it is joined."""
        return self._made.get(key)

    def add(self, key: Hashable, batcher: Batcher) -> Batcher:
        """This one, or another that was added for the key meanwhile."""
        with self._lock:
            if key not in self._made:
                self._drop_unused(len(self._made) + 1 - self._limit)
            return self._made.setdefault(key, batcher)

    def forget(self, key: Hashable, batcher: Batcher) -> None:
        """Let go of one that is retired, if it is still this key's."""
        with self._lock:
            if self._made.get(key) is batcher:
                del self._made[key]

    def _drop_unused(self, surplus: int) -> None:
        if surplus <= 0:
            return
        for key, batcher in sorted(self._made.items(), key=lambda made: made[1].used_at):
            if batcher.retire():
                del self._made[key]
                surplus -= 1
                if not surplus:
                    return
