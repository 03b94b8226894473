"""A folder of packages that was made, and its place in a published model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonkit.resources import shipped

__all__ = ["FACTS", "OWN_MODEL", "PACKAGES", "Environment", "environment_files", "read_environment"]

PACKAGES = "site-packages"
"""Folder of the packages, in an environment and in a published version."""
FACTS = "environment.json"
"""File of facts next to it, written last."""
OWN_MODEL = "tritonkit_own_model.py"
"""Published name of a model.py that has packages for itself (python_backends/own_environment)."""
_STARTER = "python_backends/own_environment/model.py"


@dataclass(frozen=True)
class Environment:
    """Facts about packages that were made.

    Args:
        python: the version of the Python that runs them, X.Y.
        machine: the kind of processor.
        numpy: the version of the server's numpy, which they use.
        packages: name -> version.
        size_bytes: the size of their files.
    """

    python: str
    machine: str
    numpy: str
    packages: Mapping[str, str]
    size_bytes: int


def read_environment(folder: Path) -> Environment | None:
    """The facts in an environment, or in a version of a model; None if there is no whole one."""
    try:
        facts: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        return Environment(**facts)
    except (OSError, ValueError, TypeError):
        return None


def environment_files(files: Mapping[str, Path], folder: Path | None) -> dict[str, Path]:
    """The files of a version whose model.py has packages for itself: the starter in its place, and the packages.

    Args:
        files: the version's files.
        folder: the environment; None if it is not made, as for a look at a model that is not built.
    """
    named = {OWN_MODEL if name == "model.py" else name: file for name, file in files.items()}
    made = {} if folder is None else {FACTS: folder / FACTS} | _packages(folder)
    return named | {"model.py": shipped(_STARTER)} | made


def _packages(folder: Path) -> dict[str, Path]:
    files = (file for file in sorted((folder / PACKAGES).rglob("*")) if file.is_file())
    return {file.relative_to(folder).as_posix(): file for file in files}
