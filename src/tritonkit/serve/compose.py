"""A project's own compose stack: `docker-compose.yml`, and what its images are built from."""

from __future__ import annotations

import shutil
from pathlib import Path

import tritonkit
from tritonkit.disk import unwritable
from tritonkit.errors import UsageError
from tritonkit.resources import clone, shipped

__all__ = ["CONTEXT", "write_compose"]

CONTEXT = Path("deploy") / "tritonkit"
"""Laid out as a clone, so that the images are built from it as from one."""

_COMPOSE = "docker-compose.yml"
_PARTS = (
    "deploy/docker", "deploy/grafana", "deploy/prometheus", "loadtest", "python_backends",
    "pyproject.toml", "README.md", "LICENSE",
)  # fmt: skip
_KEYS = Path("deploy") / "docker" / "keys"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "_data", "admin-key", "*.whl", "resources.yml")
_CLONES = "${TRITONKIT_CONTEXT:-.}"


def write_compose(root: Path) -> list[Path]:
    """Write the stack into the project at `root`; gives the files and folders written.

    `CONTEXT` is tritonkit's and is replaced; the compose file is the project's from then on, and stays.

    Raises:
        UsageError: the project is a clone of tritonkit, which has its stack, or cannot be written.
    """
    if root.resolve() == clone():
        raise UsageError(str(root), found="a clone of tritonkit has its docker-compose.yml")
    try:
        return _write(root)
    except OSError as error:
        raise unwritable(Path(error.filename or root), error, UsageError) from error


def _write(root: Path) -> list[Path]:
    context, compose, keys = root / CONTEXT, root / _COMPOSE, root / _KEYS
    shutil.rmtree(context, ignore_errors=True)
    for part in _PARTS:
        source, target = shipped(part), context / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=_LEFT_OUT)
        else:
            shutil.copyfile(source, target)
    package = Path(tritonkit.__file__).parent
    shutil.copytree(package, context / "src" / "tritonkit", ignore=_LEFT_OUT)
    keys.mkdir(parents=True, exist_ok=True)
    (keys / ".gitignore").write_text("*\n!.gitignore\n")
    written = [context, keys]
    if not compose.exists():
        text = shipped(_COMPOSE).read_text(encoding="utf-8")
        compose.write_text(text.replace(_CLONES, f"./{CONTEXT}"), encoding="utf-8")
        written.append(compose)
    return written
