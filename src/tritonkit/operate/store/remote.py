"""The store of backups: any file system that fsspec knows, with its errors translated here only.

A written file appears under its name whole or not at all. Object stores guarantee that; elsewhere it is written under
`unfinished/` and renamed.
"""

from __future__ import annotations

import errno
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.disk import sync
from tritonkit.errors import StoreError, TritonkitError, UsageError
from tritonkit.extras import need_package
from tritonkit.operate.store.keys import REQUIREMENT
from tritonkit.repository.publish.integrity import IrregularFileError, open_file
from tritonkit.text import first_line

__all__ = ["Store", "open_store"]

_LOCAL = ("file", "local")
_OBJECTS = ("memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "hf")
"""Protocols of object stores, which have no folders and show an object once it is whole."""
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "adl": "adlfs",
    "oss": "ossfs",
    "hf": "huggingface_hub",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
    "hdfs": "pyarrow",
    "webhdfs": "requests",
    "http": "aiohttp",
    "https": "aiohttp",
}
"""Protocol -> the package's name for pip."""
_CHUNK = 1 << 20
_READING = {"http": {"block_size": 0}, "https": {"block_size": 0}}
"""Options to read as a stream: not all HTTP servers support ranges."""
_UNFINISHED = "unfinished"
_SILENT_S = 60.0


@dataclass(frozen=True)
class Store:
    """A folder of a file system. Every method raises StoreError if the store cannot do it.

    Args:
        url: the address as given by the caller.
        protocol: the address's protocol, such as `s3`.
        files: the `fsspec.AbstractFileSystem`.
        root: the folder's path in `files`.
    """

    url: str
    protocol: str
    files: Any
    root: str

    @property
    def folder(self) -> Path | None:
        """The folder if the store is on this machine, else None."""
        return Path(self.root).resolve() if self.protocol in _LOCAL else None

    def where(self, path: str) -> str:
        """A name of a file of the store for messages."""
        return f"{self.url.rstrip('/')}/{path}"

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""
        with _translated(self.where(folder)):
            # Others write here too.
            self.files.invalidate_cache()
            try:
                paths = self.files.ls(self._at(folder), detail=False)
            except FileNotFoundError:
                return []
            return sorted(str(path).rstrip("/").rpartition("/")[2] for path in paths)

    def files_below(self, folder: str) -> dict[str, int]:
        """The files in the folders of a folder: path from the store's own folder -> size in bytes."""
        with _translated(self.where(folder)):
            self.files.invalidate_cache()
            entries = self.files.find(self._at(folder), detail=True)
        sizes = {}
        for path, facts in entries.items():
            name = "/".join(str(path).split("/")[-2:])
            sizes[f"{folder}/{name}"] = int(facts["size"])
        return sizes

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        with _translated(self.where(path)), suppress(FileNotFoundError):
            self.files.rm_file(self._at(path))

    def size_bytes(self, path: str) -> int | None:
        """Size of a file; None if it does not exist."""
        with _translated(self.where(path)):
            try:
                facts = self.files.info(self._at(path))
            except FileNotFoundError:
                return None
            return int(facts["size"]) if facts["type"] == "file" else None

    def read(self, path: str) -> Iterator[bytes]:
        """Read a file in parts of 1 MiB."""
        with _translated(self.where(path)):
            try:
                file = self._open(path)
            except FileNotFoundError:
                raise StoreError(
                    self.where(path),
                    found="it is missing from the store",
                    wanted="the file that a backup wrote",
                    todo="restore another backup; a new backup of an undamaged repository stores it again",
                ) from None
        try:
            while True:
                with _translated(self.where(path)):
                    part = file.read(_CHUNK)
                if not part:
                    return
                yield part
        finally:
            with suppress(Exception):
                file.close()

    def _open(self, path: str) -> Any:
        """Open a file to read; other kinds are refused, because a pipe would never end."""
        if self.protocol in _LOCAL:
            return open_file(Path(self._at(path)))
        if self.protocol not in (*_OBJECTS, *_READING) and self.files.info(self._at(path))["type"] != "file":
            raise IrregularFileError(errno.EINVAL, "it is not a file")
        return self.files.open(self._at(path), "rb", **_READING.get(self.protocol, {}))

    def write(self, path: str, parts: Iterable[bytes]) -> None:
        """Write a file, in place of an older one; an error from `parts` leaves no new file of that name."""
        if self.protocol in _OBJECTS:
            self._send(path, path, parts)
            return
        unfinished = f"{_UNFINISHED}/{secrets.token_hex(8)}"
        with _translated(self.where(path)):
            for place in (path, unfinished):
                self.files.makedirs(self._at(place.rpartition("/")[0]), exist_ok=True)
        try:
            self._send(unfinished, path, parts)
            with _translated(self.where(path)):
                self._rename(unfinished, path)
        except BaseException:
            with suppress(Exception):
                self.files.rm_file(self._at(unfinished))
            raise

    def _send(self, path: str, meant: str, parts: Iterable[bytes]) -> None:
        """Write a file; messages name `meant`."""
        with _translated(self.where(meant)):
            file = self.files.open(self._at(path), "wb")
        try:
            for part in parts:
                with _translated(self.where(meant)):
                    file.write(part)
            with _translated(self.where(meant)):
                file.close()
        except BaseException:
            self._give_up(file)
            raise

    def _give_up(self, file: Any) -> None:
        """Discard a file that is not whole.

        Closing an object would put it into the store. So fsspec's file discards it, and `closed` keeps the finalizer
        from storing it. An object that appears in a store nevertheless does not have the right size.
        """
        if self.protocol not in _OBJECTS:
            with suppress(Exception):
                file.close()
            return
        with suppress(Exception):
            file.discard()
        with suppress(Exception):
            file.closed = True

    def _rename(self, unfinished: str, path: str) -> None:
        if self.protocol in _LOCAL:
            source, target = Path(self._at(unfinished)), Path(self._at(path))
            sync(source)
            source.replace(target)
            sync(target.parent)
        else:
            self.files.mv(self._at(unfinished), self._at(path))

    def _at(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}"


def open_store(url: str) -> Store:
    """The store at an fsspec address: `s3://bucket/folder`, `gs://...`, `abfs://...`, `sftp://...`, a local folder.

    Raises:
        UsageError: the address cannot be used or contains a password, or a package is missing.
        StoreError: the store cannot be reached.
    """
    fsspec = need_package("fsspec", REQUIREMENT)
    protocol = url.partition("://")[0] if "://" in url else "file"
    shown = re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:...@", url)
    _refuse(url, shown, protocol, {*fsspec.available_protocols(), *fsspec.registry})
    try:
        with _translated(shown):
            files, root = fsspec.core.url_to_fs(url, **_options(protocol))
            # Another process may have written since this one last looked.
            files.invalidate_cache()
    except StoreError as error:
        if isinstance(error.__cause__, ImportError):
            raise _no_package(shown, protocol, error.__cause__) from error
        raise
    return Store(shown, protocol, files, str(root))


def _options(protocol: str) -> dict[str, Any]:
    """Options for HTTP: a transfer ends after silence, not after aiohttp's limit of 5 minutes in all."""
    if protocol not in _READING:
        return {}
    aiohttp = need_package("aiohttp", "aiohttp")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SILENT_S, sock_read=_SILENT_S)
    return {"client_kwargs": {"timeout": timeout, "trust_env": True}}


def _refuse(url: str, shown: str, protocol: str, protocols: Iterable[str]) -> None:
    if protocol not in protocols:
        raise UsageError(
            shown,
            found=f"there is no store of the kind {protocol!r}",
            wanted="a folder, or an address such as s3://, gs://, abfs://, sftp://",
        )
    if "::" in url or not url.partition("://")[2 if "://" in url else 0]:
        raise UsageError(shown, found="it names no folder of one store", wanted="s3://bucket/folder")
    if re.match(r"[^/]*://[^/@]*:[^/@]*@", url):
        raise UsageError(
            shown,
            found="there is a password in it, which every user of this machine can read",
            wanted="an address without one",
            todo="give it to the store's library in its own way: environment variables or its configuration file",
        )


def _no_package(shown: str, protocol: str, error: ImportError) -> UsageError:
    package = _PACKAGES.get(protocol) or error.name or protocol
    return UsageError(
        shown, found=f"the package for {protocol}:// is not installed", wanted=str(error), todo=f"pip install {package}"
    )


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Turn whatever a store's library raises into one error."""
    try:
        yield
    except (TritonkitError, MemoryError):
        raise
    except Exception as error:  # each library has a tree of errors of its own
        raise _failure(where, error) from error


def _failure(where: str, error: Exception) -> StoreError:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            where,
            found="the store is full",
            wanted="room for the files that it lacks",
            todo="free space and run the same command again: what was copied is not copied again",
        )
    if isinstance(error, PermissionError):
        return StoreError(
            where,
            found=f"access is refused: {first_line(error)}",
            todo="correct the rights of the user or account that the store's library finds",
        )
    if isinstance(error, IrregularFileError | IsADirectoryError):
        return StoreError(
            where,
            found="it is a folder, a pipe, a socket or a device",
            wanted="a file that a backup wrote",
            todo="remove it and back up again from an undamaged repository; ask who else may write to the store",
        )
    problem = f"{type(error).__name__}: {first_line(error)}"
    return StoreError(
        where,
        found=f"the store cannot be used: {problem}",
        wanted="a store that answers",
        todo="correct the address, the network or the account, then run the same command again",
    )
