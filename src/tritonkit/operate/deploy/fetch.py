"""The work of a pod's init container if models come from a store: fetch them into a folder and verify them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tritonkit.errors import StoreError
from tritonkit.operate.store import Store, open_store, restore
from tritonkit.operate.store.cache import open_cache
from tritonkit.operate.store.index import Index
from tritonkit.operate.store.restore import choose
from tritonkit.repository.publish.damage import damage
from tritonkit.repository.publish.integrity import CONFIG, Progress, verify
from tritonkit.repository.publish.publish import remove_models

__all__ = ["CACHE_BYTES", "Fetched", "fetch"]

CACHE_BYTES = 4 << 30
"""Default limit of the space that a cache's files take."""

T = TypeVar("T")
_ANSWER_S = 60.0
"""Time limit for the first answer of a store: its library may retry for many minutes."""


@dataclass(frozen=True)
class Fetched:
    """A repository that was fetched.

    Args:
        backup: the ID of its backup.
        models: their names.
        size_bytes: the size of all files.
        fetch_s, verify_s: seconds that fetching took, and seconds that verifying took after it.
        cached_bytes: the number of bytes that came out of the cache.
        cache_problem: the reason why the cache was not fully used; empty: none.
    """

    backup: str
    models: tuple[str, ...]
    size_bytes: int
    fetch_s: float
    verify_s: float
    cached_bytes: int = 0
    cache_problem: str = ""


def fetch(
    url: str,
    target: Path,
    *,
    as_of: str | None = None,
    cache: Path | None = None,
    cache_bytes: int = CACHE_BYTES,
    answer_s: float = _ANSWER_S,
    progress: Progress = lambda done, total: None,
) -> Fetched:
    """Make a folder hold the models of a backup and no others, and check every file against its manifest.

    Args:
        url: a store that `tritonkit backup` wrote.
        target: the folder; models that it already has unchanged are not fetched again.
        as_of: the beginning of a backup's ID; the latest by default.
        cache: a folder that others share, for files that one of them has fetched before.
        cache_bytes: the limit of the cache's size.
        answer_s: the time limit for the store's first answer, in seconds.
        progress: called with the bytes fetched so far and in all.

    Raises:
        UsageError: the address is not one of a store, or the store has no such backup.
        StoreError: the store does not answer or refuses, or the backup is damaged.
        ServerError: a file is not as it was published.
        PublishError: the folder cannot be written.
    """
    began = time.monotonic()
    store, name, index = _within(answer_s, url, lambda: _chosen(url, as_of))
    kept = open_cache(cache, cache_bytes, [entry.sha256 for entry in index.files]) if cache else None
    # By name, so that those are replaced too that tritonkit did not write.
    copy = kept.copy if kept else None
    done = restore(store, target, tuple(index.models), as_of=name, progress=progress, copy=copy)
    remove_models(target, [model for model in done.others if (target / model / CONFIG).exists()])
    fetched = time.monotonic()
    if findings := verify(target):
        raise damage(findings)
    verified = time.monotonic()
    if kept is not None:
        kept.prune()
    return Fetched(
        name,
        tuple(index.models),
        index.size_bytes,
        fetched - began,
        verified - fetched,
        kept.given_bytes if kept else 0,
        kept.problem if kept else "",
    )


def _chosen(url: str, as_of: str | None) -> tuple[Store, str, Index]:
    store = open_store(url)
    return store, *choose(store, as_of, None)


def _within(seconds: float, url: str, work: Callable[[], T]) -> T:
    """The result of `work`; StoreError if it takes longer."""
    results: list[T] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # raised in the thread that waits
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not results:
        raise StoreError(
            url,
            found=f"the store does not answer: nothing within {seconds:g} s",
            wanted="a store that answers",
            todo="correct the address, the network (a NetworkPolicy?) or the store, then run the same command again",
        )
    return results[0]
