"""The first level: answers in this process's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tritonkit.client.cache.entry import Entry, size_of
from tritonkit.extras import need_package

if TYPE_CHECKING:
    from cachetools import TTLCache

    from tritonkit.client.cache.settings import Cache

__all__ = ["LocalStore"]


class LocalStore:
    """Answers by key, bounded in number, bytes and age; threads may share it.

    cachetools' TTLCache bounds one sum. So each answer counts for its bytes, and for `l1_bytes / l1` at least.
    """

    __slots__ = ("_entries", "_lock", "_share")

    def __init__(self, settings: Cache, clock: Callable[[], float]) -> None:
        self._share = settings.l1_bytes // settings.l1
        self._lock = threading.Lock()
        ttl_cache = need_package("cachetools", "tritonkit[cache]").TTLCache
        self._entries: TTLCache[bytes, tuple[Entry, int]] = ttl_cache(
            self._share * settings.l1, settings.ttl_s, timer=clock, getsizeof=lambda sized: sized[1]
        )

    def get(self, key: bytes) -> Entry | None:
        """The answer under this key, if it is not too old."""
        try:
            with self._lock:
                return self._entries[key][0]
        except KeyError:
            return None

    def put(self, key: bytes, entry: Entry) -> None:
        """Keep an answer, unless it is larger than all room."""
        size = max(self._share, size_of(entry))
        with self._lock:
            if size <= self._entries.maxsize:
                self._entries[key] = (entry, size)
            else:  # not an older one in its place either
                self._entries.pop(key, None)
