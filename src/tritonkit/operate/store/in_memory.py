"""A backup restored into memory for as long as it is served: decrypted data never lies on a disk."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tritonkit.errors import PublishError, UsageError
from tritonkit.operate.store.keys import EncryptionKey
from tritonkit.operate.store.memory import free_bytes, require_memory
from tritonkit.operate.store.remote import Store
from tritonkit.operate.store.restore import choose, restore
from tritonkit.repository.modelspec.units import format_bytes
from tritonkit.repository.publish.integrity import Progress

__all__ = ["MEMORY", "restored_in_memory"]

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of the owner's alone is made there
_PREFIX = "tritonkit-models-"


@contextmanager
def restored_in_memory(
    store: Store,
    *,
    as_of: str | None = None,
    key: EncryptionKey | None = None,
    public_key: Any = None,
    memory: Path = MEMORY,
    progress: Progress = lambda done, total: None,
) -> Iterator[Path]:
    """The repository of a backup, in a folder that is removed at the end, even after an error.

    Files that a killed process left are removed by the next call of the same user.

    Args:
        as_of, key, public_key, progress: the same arguments as those of `restore`.
        memory: a folder on a tmpfs or ramfs.

    Raises:
        UsageError: `memory` is not such a folder or too small, there is no such backup, or the key does not fit.
        StoreError: the backup was changed, is damaged or not signed by the key; or the store cannot be read.
        PublishError: `memory` cannot be written.
    """
    require_memory(memory)
    _sweep(memory)
    name, index = choose(store, as_of, key)
    _require_room(memory, name, index.size_bytes)
    with _private_folder(memory) as folder:
        repository = folder / "models"
        restore(store, repository, as_of=name, key=key, public_key=public_key, progress=progress)
        yield repository


def _require_room(memory: Path, name: str, size_bytes: int) -> None:
    free = free_bytes(memory)
    if size_bytes > free:
        raise UsageError(
            str(memory),
            found=f"{format_bytes(free)} are free there or in the machine's memory",
            wanted=f"{format_bytes(size_bytes)} for the backup {name}",
            todo="name a larger tmpfs with --memory, or serve on a machine with more memory",
        )


@contextmanager
def _private_folder(memory: Path) -> Iterator[Path]:
    """A folder of this user alone, and a lock on it that ends with this process."""
    try:
        folder, descriptor = _locked_folder(memory)
    except OSError as error:
        raise PublishError(
            str(memory),
            found=f"no folder can be made there: {error.strerror}",
            wanted="a folder this user may write",
            todo="name another one with --memory",
        ) from error
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a folder in another thread, where a second signal cannot interrupt it."""
    thread = threading.Thread(target=shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True})
    while True:
        try:
            if thread.ident is None:
                thread.start()
            thread.join()
        except KeyboardInterrupt:
            continue
        return


def _locked_folder(memory: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=memory))
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another process that sweeps may have been quicker.
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)


def _sweep(memory: Path) -> None:
    """Remove folders of killed processes: their locks are gone."""
    for folder in memory.glob(f"{_PREFIX}*"):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)
