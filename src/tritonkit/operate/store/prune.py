"""Remove old backups from a store, and the files that no backup holds any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tritonkit.errors import StoreError, UsageError
from tritonkit.operate.store import blobs
from tritonkit.operate.store.index import ids, is_ahead, read_index, remove_index
from tritonkit.operate.store.keys import EncryptionKey
from tritonkit.operate.store.marks import BACKING_UP, REMOVING, StoreMark
from tritonkit.operate.store.remote import Store

__all__ = ["Pruned", "prune"]


@dataclass(frozen=True)
class Pruned:
    """Result of a removal.

    Args:
        backups: IDs of the removed backups, the oldest first.
        kept: IDs of the backups that are left.
        files: the number of files that no backup holds any more.
        size_bytes: the size of these files in the store.
    """

    backups: tuple[str, ...]
    kept: tuple[str, ...]
    files: int
    size_bytes: int


def prune(store: Store, keep: int, *, key: EncryptionKey | None = None, dry_run: bool = False) -> Pruned:
    """Remove all but the latest backups, and files that none of these needs.

    Indexes go first: an interrupted run leaves files that the next run removes. A restore of a backup that is removed
    meanwhile fails, and changes nothing.

    Args:
        keep: the number of backups to keep.
        key: the key of the kept backups, if they are encrypted.
        dry_run: whether to remove nothing, and only return what would be removed.

    Raises:
        UsageError: `keep` is below 1, or a kept backup is encrypted and the key is missing or another one.
        StoreBusy: a backup is being made; nothing was removed.
        StoreError: the store cannot be used, or a kept backup cannot be read, so that its files are unknown. Or a kept
            backup is dated in the future, so that it would outlast later ones. For such a backup nothing was removed.
    """
    if keep < 1:
        raise UsageError("--keep", found=str(keep), wanted="1 or more")
    with StoreMark(store, REMOVING) as mark:
        mark.wait_until_none(BACKING_UP, 0.0)
        backups = ids(store)
        left, old = list(backups)[-keep:], list(backups)[:-keep]
        _refuse_ahead(store, left)
        named = set(_named(store, {name: backups[name] for name in left}, key))
        unnamed = {path: size for path, size in blobs.stored(store).items() if path not in named}
        if not dry_run:
            for name in old:
                mark.renew()
                remove_index(store, name, backups[name])
            for path in unnamed:
                mark.renew()
                store.remove(path)
    return Pruned(tuple(old), tuple(left), len(unnamed), sum(unnamed.values()))


def _refuse_ahead(store: Store, left: Sequence[str]) -> None:
    for name in left:
        if is_ahead(name):
            raise StoreError(
                f"{store.url}: the backup {name}",
                found="it is dated in the future, so later backups would be removed before it",
                wanted="backups dated by a right clock",
                todo=f"correct this machine's clock; if another's was wrong, remove {store.where('backups')}/{name}.*",
            )


def _named(store: Store, left: dict[str, bool], key: EncryptionKey | None) -> Iterator[str]:
    """The paths of all files of these backups."""
    for name, encrypted in left.items():
        for entry in read_index(store, name, key, encrypted).files:
            yield blobs.path_of(entry, key if encrypted else None)
