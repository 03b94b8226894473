"""One batcher for each kind of call that can share a request."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tritonkit.client.batching.batcher import Batcher
    from tritonkit.client.batching.item import Item, Joined
    from tritonkit.client.steps import Steps

__all__ = ["Batchers"]


class _Entry:
    __slots__ = ("batcher", "users")

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self.users = 0


class Batchers:
    """Batchers by key, made when first needed; unused ones beyond `limit` are dropped, oldest first.

    A key names everything that must be equal in one request: model, version, outputs, priority,
    and the arrays' `layout`. A batcher with callers in it is never dropped, so there are never two
    for one key.
    """

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def join(self, key: Hashable, item: Item, make: Callable[[], Batcher]) -> Steps[Joined]:
        """`Batcher.join` in the batcher of this key; `make` is called if there is none yet.

        `make` runs under the lock and must be quick. Errors are those of `Batcher.join`.
        """
        entry = self._enter(key, make)
        try:
            return (yield from entry.batcher.join(item))
        finally:
            with self._lock:
                entry.users -= 1

    def _enter(self, key: Hashable, make: Callable[[], Batcher]) -> _Entry:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(make())
                entry.users += 1
                self._drop_unused()
            else:
                entry.users += 1
                self._entries.move_to_end(key)
            return entry

    def _drop_unused(self) -> None:
        surplus = len(self._entries) - self._limit
        if surplus <= 0:
            return
        unused = [key for key, entry in self._entries.items() if not entry.users]
        for key in unused[:surplus]:
            del self._entries[key]
