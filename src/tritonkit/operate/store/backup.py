"""Copy what is served to a store. An interrupted backup does not exist in it; the next one continues its work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tritonkit.errors import StoreError, UsageError
from tritonkit.operate.store import blobs, signature
from tritonkit.operate.store.contents import Contents, StoredFile, read_contents
from tritonkit.operate.store.index import Index, ids, read_index, require_readable, write_index
from tritonkit.operate.store.keys import EncryptionKey
from tritonkit.operate.store.marks import BACKING_UP, REMOVING, StoreMark
from tritonkit.operate.store.remote import Store
from tritonkit.repository.publish.damage import damage
from tritonkit.repository.publish.integrity import Progress, is_compiled, verify

__all__ = ["Backup", "Listed", "back_up", "list_backups"]


@dataclass(frozen=True)
class Backup:
    """Result of a backup.

    Args:
        id: its ID in the store.
        index: its contents.
        copied_files: the number of files that the store lacked.
        copied_bytes: the size of these files.
    """

    id: str
    index: Index
    copied_files: int
    copied_bytes: int


@dataclass(frozen=True)
class Listed:
    """A backup in a store; `index` is None if it cannot be read, and `problem` is the reason."""

    id: str
    encrypted: bool
    index: Index | None
    problem: str = ""


def back_up(
    repository: Path,
    store: Store,
    models: Sequence[str] = (),
    *,
    key: EncryptionKey | None = None,
    progress: Progress = lambda done, total: None,
) -> Backup:
    """Copy a repository that is as it was published.

    Args:
        repository: a folder of models.
        store: the store to copy to.
        models: names of the models to copy; all by default.
        key: the key that encrypts everything, including names and hashes of files; None: no encryption.
        progress: called with the number of bytes copied so far and of bytes that the store lacked.

    Raises:
        UsageError: the repository has no model, or the store lies in the repository.
        ServerError: a file is not as it was published.
        StoreError: the store cannot take the backup. Copied files are not copied again later.
    """
    _refuse_inside(repository, store)
    contents = read_contents(repository, models, deep=False)
    # Compiled Python is not copied, so it keeps nothing from being so.
    if findings := [finding for finding in verify(repository, models) if not is_compiled(finding.file)]:
        raise damage(findings)
    if not contents:
        raise UsageError(
            str(repository),
            found="there is nothing to back up: no model in it",
            wanted="a model repository",
            todo="tritonkit build, or name one with --repository",
        )
    require_readable(contents)
    signed = _fitting_signature(repository, contents, models)
    with StoreMark(store, BACKING_UP) as mark:
        mark.wait_until_none(REMOVING)
        files, size_bytes = _copy(repository, store, contents, key, mark, progress)
        index = Index(_now(), contents, signed)
        name = write_index(store, index, key)
        whole = mark.is_there()
    while not whole:
        # What removes files took this for dead, before it could see the index.
        with StoreMark(store, BACKING_UP) as mark:
            mark.wait_until_none(REMOVING)
            _copy(repository, store, contents, key, mark, progress)
            whole = mark.is_there()
    return Backup(name, index, files, size_bytes)


def _copy(
    repository: Path, store: Store, contents: Contents, key: EncryptionKey | None, mark: StoreMark, progress: Progress
) -> tuple[int, int]:
    """Copy the files that the store lacks; returns their number and their size in bytes."""
    lacking = _lacking(store, contents, key)
    total = sum(entry.size_bytes for _, entry in lacking)
    done = 0

    def count(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        progress(min(done, total), total)
        mark.renew()

    for model, entry in lacking:
        blobs.put(store, repository / model / entry.path, entry, key, count)
    return len(lacking), total


def list_backups(store: Store, key: EncryptionKey | None = None) -> list[Listed]:
    """The backups in a store, the oldest first; contents of encrypted ones can be read only with their key."""
    return [_listed(store, name, encrypted, key) for name, encrypted in ids(store).items()]


def _listed(store: Store, name: str, encrypted: bool, key: EncryptionKey | None) -> Listed:
    if encrypted and key is None:
        return Listed(name, encrypted, None, "encrypted")
    try:
        return Listed(name, encrypted, read_index(store, name, key, encrypted))
    except (StoreError, UsageError) as error:
        return Listed(name, encrypted, None, error.found)


def _refuse_inside(repository: Path, store: Store) -> None:
    folder, here = store.folder, repository.resolve()
    if folder is not None and folder.is_relative_to(here):
        raise UsageError(
            store.url,
            found=f"it lies in the repository {here}, where Triton takes folders for models",
            wanted="a folder elsewhere",
        )


def _lacking(store: Store, contents: Contents, key: EncryptionKey | None) -> list[tuple[str, StoredFile]]:
    """Model and file of each content that the store lacks; equal contents only once."""
    first: dict[str, tuple[str, StoredFile]] = {}
    for model, entries in contents.items():
        for entry in entries:
            first.setdefault(entry.sha256, (model, entry))
    return [(model, entry) for model, entry in first.values() if not blobs.is_there(store, entry, key)]


def _fitting_signature(repository: Path, contents: Contents, models: Sequence[str]) -> str | None:
    """The repository's signature, if it is of this state; restoring checks who made it."""
    text = signature.read(repository)
    try:
        signed = signature.parse(text or "").models
    except ValueError:
        return None
    unfit = next(signature.differences(signed, contents, repository, models), None)
    return text if unfit is None else None


def _now() -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"[:-3] + "Z"
