"""The place where PyTorch unpacks a compiled package; each instance unpacks its own."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACE = "TRITONKIT_UNPACK_DIR"
"""Variable that names a folder which goes with the server; without it packages go to TMPDIR, or to /tmp."""
TEMPORARY = "TMPDIR"
"""Variable that PyTorch reads for the place."""


@contextlib.contextmanager
def unpacking() -> Iterator[None]:
    """Let PyTorch unpack a package of any size into a folder of this process, while the block runs.

    PyTorch removes it when the network is dropped, but not if the load fails or the process is killed.
    """
    with _any_file_size():
        place = os.environ.get(PLACE)
        if not place:
            yield
            return
        own, before = _own_folder(Path(place)), os.environ.get(TEMPORARY)
        os.environ[TEMPORARY] = str(own)
        try:
            yield
        except BaseException:
            shutil.rmtree(own, ignore_errors=True)
            raise
        finally:
            if before is None:
                del os.environ[TEMPORARY]
            else:
                os.environ[TEMPORARY] = before


def _own_folder(place: Path) -> Path:
    """A folder named after this process. Those of processes that have ended are removed."""
    own = place / str(os.getpid())
    own.mkdir(parents=True, exist_ok=True)
    for folder in place.iterdir():
        if not Path("/proc", folder.name).exists():
            shutil.rmtree(folder, ignore_errors=True)
    return own


@contextlib.contextmanager
def _any_file_size() -> Iterator[None]:
    """Lift the server's bound on files, which is for regions of shared memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
