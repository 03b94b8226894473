"""Artifacts of earlier builds, by the hash of their inputs; each is written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tritonkit.disk import locked, sync, sync_tree, unwritable
from tritonkit.repository.export.artifact import Artifact, sha256_file
from tritonkit.text import first_line

__all__ = ["BuildCache"]

RECORD = "artifact.json"
_BUILDING = ".building-"
_RETAINED = 3
_HASH = "[0-9a-f]" * 16
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors of reading a record that is not whole."""


class BuildCache:
    """A folder of artifacts, `<model>/<variant>-<hash>/`; the newest few of each variant stay."""

    def __init__(self, folder: Path, warn: Callable[[str], None] = lambda text: None) -> None:
        self.folder = folder
        self.warn = warn
        """Function that is called for each damaged artifact."""

    @classmethod
    def of_project(cls, root: Path, warn: Callable[[str], None] = lambda text: None) -> BuildCache:
        """The cache of a project's folder."""
        return cls(root / ".tritonkit" / "cache", warn)

    def find(self, model: str, variant: str, source_hash: str) -> Artifact | None:
        """The artifact of that hash, if the cache has it undamaged; `warn` is called for a damaged one."""
        place = self._place(model, variant, source_hash)
        if not place.is_dir():
            return None
        try:
            artifact = Artifact.from_json((place / RECORD).read_text(), place)
            for name, digest in artifact.files.items():
                if sha256_file(place / name) != digest:
                    raise ValueError(f"{name}: its content is not what its hash says")
        except _DAMAGED as error:
            self.warn(f"{place} is damaged and not used: {first_line(error)}")
            return None
        return artifact

    def records(self, model: str, variant: str) -> Iterator[Artifact]:
        """The artifacts of a variant, newest first, whatever they were made from. Their files are not checked."""
        for place in self._places(model, variant):
            # `find` reports a damaged one.
            with suppress(*_DAMAGED):
                yield Artifact.from_json((place / RECORD).read_text(), place)

    @contextmanager
    def workplace(self, model: str) -> Iterator[Path]:
        """An empty folder in which to build, on the cache's file system; removed afterwards.

        A build, a search and a report may run at the same time, so a folder of another process is left alone.
        """
        parent = self.folder / model
        with ExitStack() as stack:
            try:
                parent.mkdir(parents=True, exist_ok=True)
                with locked(parent):
                    _remove_abandoned(parent)
                    folder = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=parent))
                    stack.enter_context(locked(folder))
            except OSError as error:
                raise unwritable(parent, error) from error
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            yield folder

    def store(self, artifact: Artifact) -> Artifact:
        """Move a finished artifact from its workplace into the cache."""
        place = self._place(artifact.model, artifact.variant, artifact.source_hash)
        (artifact.folder / RECORD).write_text(artifact.to_json())
        sync_tree(artifact.folder)
        with locked(place.parent):
            shutil.rmtree(place, ignore_errors=True)
            artifact.folder.rename(place)
        sync(place.parent)
        self._remove_old(artifact.model, artifact.variant)
        return Artifact.from_json((place / RECORD).read_text(), place)

    def _place(self, model: str, variant: str, source_hash: str) -> Path:
        return self.folder / model / f"{variant}-{source_hash[:16]}"

    def _places(self, model: str, variant: str) -> list[Path]:
        """The folders of a variant's artifacts, newest first."""
        return sorted((self.folder / model).glob(f"{variant}-{_HASH}"), key=os.path.getmtime, reverse=True)

    def _remove_old(self, model: str, variant: str) -> None:
        for place in self._places(model, variant)[_RETAINED:]:
            shutil.rmtree(place, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of killed builds, which no process holds."""
    for folder in parent.glob(f"{_BUILDING}*"):
        with suppress(BlockingIOError, FileNotFoundError), locked(folder, wait=False):
            shutil.rmtree(folder, ignore_errors=True)
