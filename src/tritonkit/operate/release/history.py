"""The versions served before a release, for a rollback."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tritonkit.disk import unwritable, write_whole
from tritonkit.errors import UsageError
from tritonkit.repository.publish import copy_models
from tritonkit.repository.publish.existing import made_from
from tritonkit.repository.publish.numbers import FOLDER

__all__ = ["Former", "forget", "keep", "latest", "prune"]

_FACTS = "release.json"
_KEPT = 3


@dataclass(frozen=True)
class Former:
    """A version that was served until a release.

    Args:
        folder: a repository with its Triton models.
        model: the spec's name.
        models: the Triton models' names.
        released: the changes that replaced it, as in `Candidate.changes`.
        at: the time of that release, as ISO 8601 in UTC.
    """

    folder: Path
    model: str
    models: tuple[str, ...]
    released: tuple[str, ...]
    at: str


def keep(root: Path, served: Path, model: str, released: Sequence[str]) -> Former:
    """Keep the served version of a model. Large files are linked and take no room.

    Raises:
        PublishError, UsageError: the copy cannot be written.
    """
    now_ns = time.time_ns()
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ns // 10**9))
    place = root / FOLDER / model
    name, last = f"{at.replace(':', '')}-{now_ns % 10**9:09d}", max(_names(place), default="")
    # A clock that was put back must not make an earlier release the last one.
    folder = place / (name if name > last else f"{last}~")
    try:
        copied = copy_models(served, folder, made_from(served, model))
        former = Former(folder, model, tuple(copied), tuple(released), at)
        facts = {name: value for name, value in asdict(former).items() if name != "folder"}
        write_whole(folder / _FACTS, json.dumps(facts, indent=1).encode())
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise unwritable(folder, error, UsageError) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return former


def _names(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()] if place.is_dir() else []


def prune(root: Path, model: str) -> None:
    """Keep only the latest versions."""
    place = root / FOLDER / model
    for older in sorted(path for path in place.iterdir() if path.is_dir())[:-_KEPT]:
        shutil.rmtree(older, ignore_errors=True)


def latest(root: Path, model: str) -> Former:
    """The versions that the last release replaced.

    Raises:
        UsageError: there was no release.
    """
    place = root / FOLDER / model
    for folder in sorted(place.iterdir(), reverse=True) if place.is_dir() else ():
        try:
            facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
            lists = {name: tuple(facts[name]) for name in ("models", "released")}
            return Former(**{**facts, **lists, "folder": folder})
        except (OSError, ValueError, KeyError, TypeError):
            continue
    raise UsageError(
        f"models/{model}",
        found="no release of it is known, or all were taken back",
        wanted="one that `tritonkit release` made",
        todo=f"{root / FOLDER} holds the last {_KEPT} of each model",
    )


def forget(former: Former) -> None:
    """Remove the copy of a version that is served again."""
    shutil.rmtree(former.folder, ignore_errors=True)
