"""One batcher for each kind of call that can share a request."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tritonkit.client.batching.batcher import Batcher

__all__ = ["BatcherPool"]


class BatcherPool:
    """Batchers by key, made when first needed; the `limit` used last stay even without callers.

    A key names everything that must be equal in one request: version, outputs, priority, and the
    arrays' `layout`. There are never two for one key: its callers hold the batcher, so that others find it.
    """

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._made: dict[Hashable, Batcher] = {}
        self._all: WeakValueDictionary[Hashable, Batcher] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: Hashable, make: Callable[[], Batcher]) -> Batcher:
        """The batcher of this key."""
        return self._made.get(key) or self._find(key, make)

    def _find(self, key: Hashable, make: Callable[[], Batcher]) -> Batcher:
        with self._lock:
            if len(self._made) >= self._limit and key not in self._made:
                del self._made[min(self._made, key=lambda made: self._made[made].used_at)]
            batcher = self._all.get(key) or make()
            self._made[key] = self._all[key] = batcher
            return batcher
