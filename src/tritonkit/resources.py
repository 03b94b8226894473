"""What tritonkit brings beside its Python: pipeline steps, backends, the load test, files for containers.

In a clone these are its top-level folders. A wheel carries copies of them as data of the package, so that a
project anywhere has them too; what a project has under the same path comes before what is shipped.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tritonkit.errors import TritonkitError

__all__ = ["STEPS", "clone", "own_or_shipped", "shipped"]

STEPS = "python_backends/steps"
"""Where pipeline steps lie, in what is shipped and in a project."""


def clone() -> Path | None:
    """The clone whose sources are running; None where tritonkit was installed from a wheel."""
    folder = _carried().parents[2]
    return None if _carried().is_dir() or not (folder / "python_backends").is_dir() else folder


def shipped(path: str) -> Path:
    """A file or folder that came with tritonkit, such as `shipped("python_backends/steps")`.

    Raises:
        TritonkitError: the installation lacks it.
    """
    found = (clone() or _carried()) / path
    if not found.exists():
        raise TritonkitError(
            str(found), found="this installation of tritonkit lacks it",
            wanted=f"{path}, as a wheel or a clone of tritonkit has it",
            todo="pip install --force-reinstall --no-deps tritonkit",
        )  # fmt: skip
    return found


def own_or_shipped(root: Path, path: str) -> Path:
    """The file or folder that the project at `root` has under this path, else the shipped one."""
    own = root / path
    return own if own.exists() else shipped(path)


@cache
def _carried() -> Path:
    """The data of the package, which setup.py writes into the wheel; a clone has none."""
    from importlib.resources import files  # some milliseconds that a client does without

    return Path(str(files("tritonkit"))) / "_data"
