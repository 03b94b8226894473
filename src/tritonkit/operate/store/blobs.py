"""The files of backups, named by the hash of their content and stored once for all backups.

A file is `blobs/AB/HASH` or, if encrypted, `sealed/AB/NAME`, with a name that does not reveal the hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tritonkit.errors import ServerError, StoreError
from tritonkit.operate.store.contents import StoredFile
from tritonkit.operate.store.encryption import decrypt, encrypt, encrypted_bytes, hidden_name
from tritonkit.operate.store.keys import EncryptionKey
from tritonkit.operate.store.remote import Store
from tritonkit.repository.publish.integrity import open_file

__all__ = ["fetch", "is_there", "path_of", "put", "stored"]

_CHUNK = 1 << 20
_FOLDERS = ("blobs", "sealed")
_BLOB = re.compile(r"(blobs|sealed)/([0-9a-f]{2})/\2[0-9a-f]{62}")


def is_there(store: Store, entry: StoredFile, key: EncryptionKey | None) -> bool:
    """Whether the store has a whole file, judged by its size: an interrupted copy leaves a shorter one."""
    size_bytes = entry.size_bytes if key is None else encrypted_bytes(entry.size_bytes)
    return store.size_bytes(path_of(entry, key)) == size_bytes


def stored(store: Store) -> dict[str, int]:
    """All blobs in a store, including those of no backup: path -> size in bytes there."""
    return {
        path: size_bytes
        for folder in _FOLDERS
        for path, size_bytes in store.files_below(folder).items()
        if _BLOB.fullmatch(path)
    }


def put(store: Store, file: Path, entry: StoredFile, key: EncryptionKey | None, count: Callable[[int], None]) -> None:
    """Copy a file into the store.

    Raises:
        ServerError: the file's content is not that of `entry`; the store keeps nothing of it.
        StoreError: the store cannot take the file.
    """
    parts = _read(file, entry, count)
    sent = parts if key is None else encrypt(parts, key, hidden_name(key, entry.sha256))
    store.write(path_of(entry, key), sent)


def fetch(store: Store, entry: StoredFile, key: EncryptionKey | None, count: Callable[[int], None]) -> Iterator[bytes]:
    """A file's content, in parts, which are valid only if the iteration ends without an error.

    Raises:
        StoreError: the file is missing or damaged, or the store cannot be read.
        UsageError: the file was encrypted with another key.
    """
    path = path_of(entry, key)
    where = store.where(path)
    parts: Iterable[bytes] = store.read(path)
    if key is not None:
        parts = decrypt(parts, key, hidden_name(key, entry.sha256), where)
    digest, size_bytes = hashlib.sha256(), 0
    for part in parts:
        size_bytes += len(part)
        if size_bytes > entry.size_bytes:
            break
        digest.update(part)
        count(len(part))
        yield part
    if size_bytes != entry.size_bytes or digest.hexdigest() != entry.sha256:
        raise StoreError(
            where,
            found=f"it is damaged: it is not the {entry.path} that was put there",
            wanted=f"sha256 {entry.sha256[:12]}... of {entry.size_bytes} bytes",
            todo="delete it from the store and back up again from an undamaged repository,"
            " or restore an earlier backup",
        )


def path_of(entry: StoredFile, key: EncryptionKey | None) -> str:
    """Path of a file in the store."""
    if key is None:
        return f"blobs/{entry.sha256[:2]}/{entry.sha256}"
    name = hidden_name(key, entry.sha256)
    return f"sealed/{name[:2]}/{name}"


def _read(file: Path, entry: StoredFile, count: Callable[[int], None]) -> Iterator[bytes]:
    """The parts of a file; ServerError at their end if the content is not that of `entry`."""
    digest, size_bytes = hashlib.sha256(), 0
    try:
        with open_file(file) as stream:
            while part := stream.read(_CHUNK):
                digest.update(part)
                size_bytes += len(part)
                count(len(part))
                yield part
    except OSError as error:
        raise _changed(file, f"it cannot be read: {error.strerror}", entry) from error
    if digest.hexdigest() != entry.sha256 or size_bytes != entry.size_bytes:
        raise _changed(file, f"sha256 {digest.hexdigest()[:12]}... of {size_bytes} bytes", entry)


def _changed(file: Path, found: str, entry: StoredFile) -> ServerError:
    return ServerError(
        str(file),
        found=found,
        wanted=f"{entry.sha256[:12]}... of {entry.size_bytes} bytes",
        todo="if a build was writing it just now, run the command again; else build the models again: tritonkit build",
    )
