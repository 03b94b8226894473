"""Models of one repository in another: as a copy that takes no extra room, or in place of the models there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tritonkit.disk import locked
from tritonkit.repository.publish.existing import made_from
from tritonkit.repository.publish.publish import disk_errors, remove_models, staged

__all__ = ["copy_models", "replace_models"]

_LINKED_BYTES = 1 << 20
_COMPILED = shutil.ignore_patterns("__pycache__")


def copy_models(source: Path, out: Path, models: Sequence[str] | None = None) -> list[str]:
    """Copy models into a repository that has none of them; a publish into `source` waits meanwhile.

    Large files are linked, because publishing replaces files and never changes them. Small files, which people edit,
    are copied. Compiled Python is left out.

    Args:
        source: the repository to copy from.
        out: the repository to copy to; on the same disk, large files take no extra room.
        models: names of the models to copy; all folders by default.

    Returns:
        The names that were copied.

    Raises:
        PublishError: a repository cannot be read or written, or its disk is full.
    """
    with disk_errors(out), locked(source):
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = [path.name for path in sorted(source.iterdir()) if path.is_dir() and path.name[0] != "."]
        names = [name for name in there if models is None or name in models]
        for name in names:
            shutil.copytree(source / name, out / name, copy_function=_copy, ignore=_COMPILED)
    return names


def replace_models(source: Path, repository: Path, spec: str, models: Sequence[str]) -> None:
    """Put models of one repository in place of those in another that were rendered from the same spec.

    Each model is exchanged in one step, and all of them or none. Models of the spec that are not among them are
    removed.

    Raises:
        PublishError: the repository cannot be written, or its disk is full; everything stays as it was.
    """
    with staged(repository) as stage:
        for name in models:
            shutil.copytree(source / name, stage.new(name), copy_function=_copy, dirs_exist_ok=True, ignore=_COMPILED)
        stage.commit(models)
    remove_models(repository, [name for name in made_from(repository, spec) if name not in models])


def _copy(source: str, target: str) -> None:
    if Path(source).stat().st_size >= _LINKED_BYTES:
        try:
            os.link(Path(source).resolve(), target)
            return
        except OSError:  # another file system, or another owner's
            pass
    shutil.copy2(source, target)
