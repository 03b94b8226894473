"""The index of a backup: the list of its files. A backup exists once its index does.

The file is `backups/ID.json`, or `backups/ID.sealed` if encrypted. An ID is made of the moment and the hash of the
index file, so it identifies the content: a backup that was changed afterwards is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tritonkit.errors import StoreError, UsageError
from tritonkit.operate.store.contents import SHA256, Contents, StoredFile, is_file_of_a_model
from tritonkit.operate.store.encryption import decrypt, encrypt
from tritonkit.operate.store.keys import EncryptionKey
from tritonkit.operate.store.remote import Store
from tritonkit.repository.modelspec.document import nearest
from tritonkit.repository.publish.staging import MODEL_NAME

__all__ = ["Index", "find", "ids", "is_ahead", "read_index", "remove_index", "require_readable", "write_index"]

_FORMAT = "tritonkit backup 1"
_FOLDER = "backups"
_PLAIN, _SEALED = ".json", ".sealed"
_ID = re.compile(r"(?P<created>\d{8}T\d{6}\.\d{3}Z)-(?P<digest>[0-9a-f]{32})")
_MOST_BYTES = 1 << 26
_MOST_FILES = 200_000
_MOST_FILE_BYTES = 1 << 50


@dataclass(frozen=True)
class Index:
    """Contents of a backup.

    Args:
        created: its time in UTC, such as `20260131T235959.000Z`.
        models: model -> its files.
        signature: the text of the repository's `signature.json`; None if it was not signed.
    """

    created: str
    models: Contents
    signature: str | None

    @property
    def files(self) -> list[StoredFile]:
        """Files of all models."""
        return [entry for entries in self.models.values() for entry in entries]

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(entry.size_bytes for entry in self.files)


def ids(store: Store) -> dict[str, bool]:
    """The backups in a store, the oldest first: ID -> whether it is encrypted."""
    encrypted = {}
    for name in store.names(_FOLDER):
        for suffix in (_PLAIN, _SEALED):
            if name.endswith(suffix) and _ID.fullmatch(name.removesuffix(suffix)):
                encrypted[name.removesuffix(suffix)] = suffix == _SEALED
    return encrypted


def find(backups: Mapping[str, bool], store: Store, prefix: str | None) -> str:
    """The latest ID that begins with `prefix`, such as a day; by default the latest of all. UsageError without one."""
    if not backups:
        raise UsageError(
            store.url,
            found="it holds no backups",
            wanted="a folder that holds some",
            todo=f"tritonkit backup {store.url}",
        )
    meant = [name for name in backups if prefix is None or (prefix and name.startswith(prefix))]
    if not meant:
        raise UsageError(
            f"--as-of {prefix}",
            found=f"{store.url} has no such backup",
            wanted=nearest(prefix or "", list(backups)),
            todo=f"tritonkit backup {store.url} --list",
        )
    return meant[-1]


def is_ahead(name: str) -> bool:
    """Whether a backup is dated more than a day after now: its machine's clock was wrong, or this one's is."""
    return name > f"{datetime.now(UTC) + timedelta(days=1):%Y%m%dT%H%M%S}"


def require_readable(contents: Contents) -> None:
    """Raise UsageError for more files than a backup's index may have: such a backup could never be restored."""
    count = sum(map(len, contents.values()))
    if count > _MOST_FILES:
        raise UsageError(
            "the backup",
            found=f"{count} files",
            wanted=f"{_MOST_FILES} at most",
            todo="make more than one: tritonkit backup URL MODEL ...",
        )


def write_index(store: Store, index: Index, key: EncryptionKey | None) -> str:
    """Make a backup visible, and return its ID."""
    models = {
        name: {entry.path: [entry.sha256, entry.size_bytes] for entry in entries}
        for name, entries in index.models.items()
    }
    facts = {"format": _FORMAT, "created": index.created, "signature": index.signature, "models": models}
    data = json.dumps(facts, indent=1, sort_keys=True).encode()
    if key is not None:
        data = b"".join(encrypt([data], key, _bound(index.created)))
    name = f"{index.created}-{_digest(data)}"
    store.write(f"{_FOLDER}/{name}{_PLAIN if key is None else _SEALED}", [data])
    return name


def remove_index(store: Store, name: str, encrypted: bool) -> None:
    """Make a backup invisible; its files stay."""
    store.remove(f"{_FOLDER}/{name}{_SEALED if encrypted else _PLAIN}")


def read_index(store: Store, name: str, key: EncryptionKey | None, encrypted: bool) -> Index:
    """The index of a backup.

    Raises:
        UsageError: the index is encrypted, and the key is missing or another one.
        StoreError: the index was changed, or has a path outside a model's folder.
    """
    path = f"{_FOLDER}/{name}{_SEALED if encrypted else _PLAIN}"
    where = store.where(path)
    data = _bounded(store, path)
    created, _, digest = name.partition("-")
    if _digest(data) != digest:
        raise _refused(where, "it was changed after it was written: its content is not of its name")
    if encrypted:
        if key is None:
            raise UsageError(
                where, found="this backup is encrypted", wanted="the key", todo="name its file with --encryption-key"
            )
        data = b"".join(decrypt([data], key, _bound(created), where))
    try:
        index = _parse(data)
    except (ValueError, RecursionError) as error:
        raise _refused(where, f"it is not an index of a backup: {error}") from error
    if index.created != created:
        raise _refused(where, "it is the index of another moment")
    return index


def _bounded(store: Store, path: str) -> bytes:
    data = bytearray()
    for part in store.read(path):
        data += part
        if len(data) > _MOST_BYTES:
            raise _refused(store.where(path), f"it is larger than {_MOST_BYTES} bytes")
    return bytes(data)


def _parse(data: bytes) -> Index:
    """Read an index; ValueError if it is malformed."""
    facts = json.loads(data)
    if not isinstance(facts, dict) or facts.get("format") != _FORMAT:
        raise ValueError(f"not of the format {_FORMAT!r}")
    created, models, signature = (facts.get(name) for name in ("created", "models", "signature"))
    if not isinstance(created, str) or not isinstance(models, dict) or not models:
        raise ValueError("no models, or no moment")
    if signature is not None and not isinstance(signature, str):
        raise ValueError("a signature that is not text")
    if sum(len(files) for files in models.values() if isinstance(files, dict)) > _MOST_FILES:
        raise ValueError(f"more than {_MOST_FILES} files")
    return Index(created, {name: _entries(name, files) for name, files in models.items()}, signature)


def _entries(name: str, files: Any) -> tuple[StoredFile, ...]:
    if not MODEL_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a model")
    if not isinstance(files, dict) or not files:
        raise ValueError(f"{name} has no files")
    for path in files:
        # Only a hostile index has long paths: all their folders together would fill the memory.
        if not is_file_of_a_model(path):
            raise ValueError(f"{name} has a file {path[:200]!r}, which lies outside its folder")
        above = (path[:at] for at, letter in enumerate(path) if letter == "/")
        if (folder := next((parent for parent in above if parent in files), None)) is not None:
            raise ValueError(f"{name} has {folder!r} as a file and as a folder")
    return tuple(_entry(path, facts) for path, facts in sorted(files.items()))


def _entry(path: str, facts: Any) -> StoredFile:
    if not isinstance(facts, list) or len(facts) != 2:
        raise ValueError(f"{path!r} has no hash and size")
    sha256, size_bytes = facts
    if not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
        raise ValueError(f"{path!r} has an invalid hash")
    if type(size_bytes) is not int or not 0 <= size_bytes <= _MOST_FILE_BYTES:
        raise ValueError(f"{path!r} has a size that is none")
    return StoredFile(path, sha256, size_bytes)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _bound(created: str) -> str:
    """The name under which an index is encrypted, because its ID is not known yet."""
    return f"index {created}"


def _refused(where: str, found: str) -> StoreError:
    return StoreError(
        where,
        found=found,
        wanted="an index as tritonkit backup has written it",
        todo="restore another backup: --as-of ID; ask who else may write to the store",
    )
