"""The first level: answers in this process's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tritonkit.client.cache.entry import Kept, size_of
from tritonkit.client.cache.extras import need

if TYPE_CHECKING:
    from cachetools import TTLCache

    from tritonkit.client.cache.settings import Cache

__all__ = ["Memory"]


class Memory:
    """Answers by key, bounded in number, bytes and age; threads may share it.

    cachetools' TTLCache bounds one sum. So each answer counts for its bytes, but at least for its share
    of the bytes if all `l1` answers were alike: neither bound can be passed.
    """

    __slots__ = ("_kept", "_lock", "_share")

    def __init__(self, settings: Cache, clock: Callable[[], float]) -> None:
        self._share = settings.l1_bytes // settings.l1
        self._lock = threading.Lock()
        self._kept: TTLCache[bytes, tuple[Kept, int]] = need("cachetools").TTLCache(
            self._share * settings.l1, settings.ttl_s, timer=clock, getsizeof=lambda held: held[1]
        )

    def get(self, key: bytes) -> Kept | None:
        """The answer kept under this key, if it is not too old."""
        try:
            with self._lock:
                return self._kept[key][0]
        except KeyError:
            return None

    def put(self, key: bytes, kept: Kept) -> None:
        """Keep an answer; one that is larger than all room is not kept."""
        size = max(self._share, size_of(kept))
        with self._lock:
            if size <= self._kept.maxsize:
                self._kept[key] = (kept, size)
            else:  # not an older one in its place either
                self._kept.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
