"""One batcher for each kind of call that can share a request."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tritonkit.client.batching.batcher import Retired

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tritonkit.client.batching.batcher import Batcher
    from tritonkit.client.batching.item import Item, Joined
    from tritonkit.client.steps import Steps

__all__ = ["Batchers"]


class Batchers:
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

    def join(self, key: Hashable, item: Item, make: Callable[[], Batcher]) -> Steps[Joined]:
        """`Batcher.join` in the batcher of this key; `make` is called if there is none yet.

        `make` runs under the lock and must be quick. Errors are those of `Batcher.join`.
        """
        while True:
            batcher = self._made.get(key) or self._added(key, make)
            try:
                return (yield from batcher.join(item))
            except Retired:  # between the two lines before
                continue

    def _added(self, key: Hashable, make: Callable[[], Batcher]) -> Batcher:
        with self._lock:
            batcher = self._made.get(key)
            if batcher is None:
                batcher = make()
                self._drop_unused(len(self._made) + 1 - self._limit)
                self._made[key] = batcher
            return batcher

    def _drop_unused(self, surplus: int) -> None:
        if surplus <= 0:
            return
        for key, batcher in sorted(self._made.items(), key=lambda made: made[1].used_at):
            if batcher.retire():
                del self._made[key]
                surplus -= 1
                if not surplus:
                    return
