"""Files that tritonkit ships in addition to its Python: pipeline steps, backends, the load test, files for containers.

In a clone these are its top-level folders. A wheel carries copies of them as package data, so that a project anywhere
has them too. A project's file under the same path takes precedence over the shipped one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from tritonkit.errors import TritonkitError

__all__ = ["STEPS", "clone", "own_or_shipped", "shipped", "shipped_modules"]

STEPS = "python_backends/steps"
"""The folder of pipeline steps, both shipped and in a project."""


def clone() -> Path | None:
    """The clone whose sources are running; None if tritonkit was installed from a wheel."""
    folder = _carried().parents[2]
    return None if _carried().is_dir() or not (folder / "python_backends").is_dir() else folder


def shipped(path: str) -> Path:
    """A file or folder that came with tritonkit, such as `shipped("python_backends/steps")`.

    Raises:
        TritonkitError: the installation lacks the file.
    """
    place = (clone() or _carried()) / path
    if not place.exists():
        raise TritonkitError(
            str(place),
            found="this installation of tritonkit lacks it",
            wanted=f"{path}, as a wheel or a clone of tritonkit has it",
            todo="pip install --force-reinstall --no-deps tritonkit",
        )
    return place


def own_or_shipped(root: Path, path: str) -> Path:
    """The file or folder that the project at `root` has under this path, else the shipped one."""
    own = root / path
    return own if own.exists() else shipped(path)


def shipped_modules(folders: Sequence[str], *names: str) -> tuple[ModuleType, ...]:
    """Modules that run inside Triton, such as `shipped_modules(["python_backends/backends/llm"], "llm_template")`.

    They import each other by plain names, as in a server. Here such names belong to the user, so they stand for these
    modules only during the import.
    """
    places = [shipped(folder) for folder in folders]
    plain = {file.stem for place in places for file in place.glob("*.py")}
    before = {name: sys.modules.pop(name) for name in plain if name in sys.modules}
    path = list(sys.path)
    sys.path[:0] = map(str, places)
    try:
        return tuple(importlib.import_module(name) for name in names)
    finally:
        sys.path[:] = path
        for name in plain:
            sys.modules.pop(name, None)
        sys.modules.update(before)


@cache
def _carried() -> Path:
    """The data of the package, which setup.py writes into the wheel; a clone has none."""
    from importlib.resources import files  # saves a client some milliseconds

    return Path(str(files("tritonkit"))) / "_data"
