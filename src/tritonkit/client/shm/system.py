"""Shared memory of the machine itself, POSIX: a file under `/dev/shm` that both sides map.

It does not use `multiprocessing.shared_memory`, whose resource tracker can be switched off only since Python 3.13.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tritonkit.client.wire.messages import message
from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FOLDER", "SystemMemory", "sweep"]

FOLDER = Path("/dev/shm")  # noqa: S108 (where shm_open of the C library looks)

_PREFIX = "tritonkit-client-"
_ABANDONED_S = 600.0
"""Seconds for which a file exists while a server opens it, at most."""


class SystemMemory:
    """`size` bytes, all allocated immediately: a write to memory that cannot be allocated would kill the process.

    Its name cannot be guessed, no other user can open it, and `hide` removes the name. A server that has opened it
    keeps it, so nothing outlives both processes, however they end.

    Raises:
        UsageError: the machine has no room for it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._path = FOLDER / f"{_PREFIX}{secrets.token_hex(16)}"
        self._map = _mapped(self._path, size)
        self._bytes = np.frombuffer(self._map, np.uint8)

    def request(self, name: str) -> bytes:
        """The message that lets a server open it under `name`."""
        key = f"/{self._path.name}"
        return message("SystemSharedMemoryRegister", name=name, key=key, byte_size=self.size)

    def hide(self) -> None:
        """Remove the name of the memory."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def write(self, offset: int, array: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Copy an array of any layout and byte order, as row-major values of `dtype`."""
        place = self._bytes[offset : offset + array.size * dtype.itemsize]
        np.copyto(place.view(dtype).reshape(array.shape), array)

    def whole(self) -> NDArray[np.uint8]:
        """The whole memory as a new read-only array, which lives as long as a slice of it."""
        whole = np.frombuffer(self._map, np.uint8)
        whole.flags.writeable = False
        return whole

    def free(self) -> None:
        """Do nothing: it is unmapped when the last reference is gone."""


def sweep(now: float | None = None) -> None:
    """Remove files whose process was killed before a server had opened them."""
    oldest = (time.time() if now is None else now) - _ABANDONED_S
    for path in FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == os.getuid() and path.stat().st_mtime < oldest:
                path.unlink()


def _mapped(path: Path, size: int) -> mmap.mmap:
    try:
        # O_EXCL: never another program's file, nor a link.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _unusable(size, error) from error
    try:
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    except BaseException as error:
        path.unlink()
        if isinstance(error, OSError):
            raise _unusable(size, error) from error
        raise
    finally:
        os.close(descriptor)


def _unusable(size: int, error: OSError) -> UsageError:
    expected = f"{size / 2**20:.1f} MiB for one more region"
    if error.errno not in (errno.ENOSPC, errno.ENOMEM):
        return UsageError(
            str(FOLDER),
            found=error.strerror or str(error),
            wanted=expected,
            todo="call without shared memory: it needs Linux, and a file system of memory here",
        )
    room = os.statvfs(FOLDER)
    return UsageError(
        str(FOLDER),
        found=f"{room.f_bavail * room.f_frsize / 2**20:.1f} MiB free"
        f" of {room.f_blocks * room.f_frsize / 2**20:.1f} MiB",
        wanted=expected,
        todo="give the container more (docker run --shm-size=1g, shm_size in compose), lower"
        " SharedMemory(limit=...), or call without shared memory",
    )
