"""Bring a repository back to a backup: every file's hash is checked before any model is put in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from tritonkit.errors import PublishError, StoreError, UsageError
from tritonkit.operate.store import blobs, signature
from tritonkit.operate.store.contents import Contents, StoredFile, read_contents
from tritonkit.operate.store.index import Index, find, ids, read_index
from tritonkit.operate.store.keys import EncryptionKey
from tritonkit.operate.store.remote import Store
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.publish.integrity import Progress, compiled, foreign
from tritonkit.repository.publish.publish import require_space, staged
from tritonkit.repository.publish.staging import Staging

__all__ = ["Copy", "Restored", "choose", "restore"]

Copy = Callable[[StoredFile, IO[bytes], Callable[[], Iterator[bytes]]], None]
"""Function that writes a file's content; it calls its last argument for content that it does not have."""


@dataclass(frozen=True)
class Restored:
    """Result of a restore.

    Args:
        id: the backup's ID.
        models: model -> whether it was put in place or was already the same.
        others: models of the repository that the backup does not hold; they stay.
    """

    id: str
    models: dict[str, Literal["restored", "unchanged"]]
    others: tuple[str, ...]


def choose(store: Store, as_of: str | None, key: EncryptionKey | None) -> tuple[str, Index]:
    """The ID and the index of the chosen backup.

    Raises:
        UsageError: there is no such backup, or the key is missing or another one.
        StoreError: the backup's index was changed, or is not encrypted although there is a key: anyone who can write to
            the store could have put it there.
    """
    backups = ids(store)
    name = find(backups, store, as_of)
    if key is not None and not backups[name]:
        raise StoreError(
            store.where(name),
            found="it is not encrypted",
            wanted=f"a backup that {key.file} opens",
            todo="name an encrypted one: --as-of ID, or leave the key out; ask who else may write to the store",
        )
    return name, read_index(store, name, key, backups[name])


def restore(
    store: Store,
    repository: Path,
    models: Sequence[str] = (),
    *,
    as_of: str | None = None,
    key: EncryptionKey | None = None,
    public_key: Any = None,
    progress: Progress = lambda done, total: None,
    copy: Copy | None = None,
) -> Restored:
    """Put the models of a backup in place, each in one step and all of them or none.

    Args:
        store: the store with the backup.
        repository: the repository to write; a missing one is made, readable by this user alone.
        models: names of the models; all of the backup by default. A model that tritonkit did not write is replaced only
            by name.
        as_of: the beginning of the backup's ID; the latest match is restored, by default the latest backup.
        key: the key of an encrypted backup.
        public_key: an `Ed25519PublicKey`, whose owner must have signed the backup; None: any backup.
        progress: called with the number of bytes copied so far and in all.
        copy: a function that copies a file from somewhere nearer than the store, such as `FileCache.copy`.

    Raises:
        UsageError: there is no such backup or model, or the key is missing or another one.
        StoreError: the backup was changed, is damaged or not signed by the key; or the store cannot be read.
        PublishError: the repository cannot be written, or its disk is full.
    """
    name, index = choose(store, as_of, key)
    chosen = {model: index.models[model] for model in _known(models, index, name)}
    if public_key is not None:
        _require_signed(store, name, index, public_key, models)
    with _made_private(repository), staged(repository) as stage:
        there = {model: _read_there(repository, model) for model in chosen}
        changed = [model for model in chosen if there[model] != chosen[model]]
        _refuse_foreign(repository, [model for model in changed if model not in models])
        _stage(store, stage, {model: chosen[model] for model in changed}, key, progress, copy or _copy)
        if changed:
            stage.commit(changed)
        if index.signature is not None and not models:
            signature.write(repository, index.signature)
    others = [path.name for path in sorted(repository.iterdir()) if path.is_dir()]
    return Restored(
        name,
        {model: "restored" if model in changed else "unchanged" for model in chosen},
        tuple(model for model in others if model not in index.models and model[0] != "."),
    )


def _known(models: Sequence[str], index: Index, name: str) -> list[str]:
    for model in models:
        if model not in index.models:
            raise UsageError(
                f"model {model!r}",
                found=f"the backup {name} does not hold it",
                wanted=nearest(model, list(index.models)),
            )
    return list(dict.fromkeys(models)) or list(index.models)


def _require_signed(store: Store, name: str, index: Index, public_key: Any, models: Sequence[str]) -> None:
    findings = signature.check(index.models, index.signature, public_key, Path(), models)
    if findings:
        first = findings[0]
        raise StoreError(
            f"{store.where(name)} {first.file}",
            found=first.found,
            wanted=first.wanted,
            todo="restore another backup: --as-of ID; to have a signed one, sign the repository first: tritonkit sign",
        )


@contextmanager
def _made_private(repository: Path) -> Iterator[None]:
    """A new repository that only its owner can read, as backups may be secret. It is removed if it stays empty."""
    if repository.exists():
        yield
        return
    try:
        repository.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise PublishError(
            str(repository),
            found=f"it cannot be made: {error.strerror}",
            wanted="a folder this user may write",
            todo="name another --repository",
        ) from error
    try:
        yield
    except BaseException:
        with suppress(OSError):
            repository.rmdir()
        raise


def _read_there(repository: Path, model: str) -> tuple[StoredFile, ...]:
    """The files of a model in the repository; none if it is missing, or cannot be equal to one of a backup."""
    try:
        contents: Contents = read_contents(repository, [model])
    except UsageError:
        return ()
    # Compiled Python next to it is in no backup: the model is put in place again, without it.
    return () if compiled(repository / model) else contents[model]


def _refuse_foreign(repository: Path, models: Sequence[str]) -> None:
    for model in foreign(repository, models) if models else ():
        raise PublishError(
            str(repository / model),
            found="tritonkit did not write it, and it is not as in the backup",
            wanted="its name on the command line, if the backup's is to replace it",
        )


def _stage(
    store: Store, stage: Staging, models: Contents, key: EncryptionKey | None, progress: Progress, copy: Copy
) -> None:
    """Write the models into a folder next to the repository."""
    total = sum(entry.size_bytes for entries in models.values() for entry in entries)
    require_space(stage.out, total)
    done = 0

    def count(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        progress(min(done, total), total)

    for model, entries in models.items():
        folder = stage.new(model)
        for entry in entries:
            file = folder / entry.path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("xb") as opened:
                copy(entry, opened, partial(blobs.fetch, store, entry, key, count))


def _copy(entry: StoredFile, target: IO[bytes], fetch: Callable[[], Iterator[bytes]]) -> None:
    for part in fetch():
        target.write(part)
