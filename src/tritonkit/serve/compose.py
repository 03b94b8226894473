"""A project's own compose stack: `docker-compose.yml`, and the files its images are built from."""

from __future__ import annotations

import shutil
from pathlib import Path

import tritonkit
from tritonkit.disk import unwritable
from tritonkit.errors import UsageError
from tritonkit.resources import clone, shipped

__all__ = ["CONTEXT", "write_compose"]

CONTEXT = Path("deploy") / "tritonkit"
"""Folder with the layout of a clone, so that the images are built from it as from a clone."""

_PARTS = (
    "deploy/docker",
    "deploy/grafana",
    "deploy/prometheus",
    "loadtest",
    "python_backends",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
_OWN = (
    "docker-compose.yml",
    "docker-compose.direct.yml",
    "deploy/alertmanager/alertmanager.yml",
    "deploy/collector/collector.yml",
)
"""The files that a person edits."""
_PRIVATE = (("deploy/docker/keys", "*\n!.gitignore\n"), ("deploy/gateway", "*\n!.gitignore\n!gateway.yaml\n"))
"""Files that keep folders of keys out of version control, with their content."""
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "_data", "admin-key", "*.whl", "resources.yml")
_CLONES = "${TRITONKIT_CONTEXT:-.}"


def write_compose(root: Path) -> list[Path]:
    """Write the stack into the project at `root`; return the files and folders written.

    `CONTEXT` belongs to tritonkit and is replaced. Files that a person changes belong to the project, and stay.

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
    context = root / CONTEXT
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
    written = [context]
    for name, ignored in _PRIVATE:
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / ".gitignore").write_text(ignored)
        written.append(root / name)
    for name in _OWN:
        file = root / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            text = shipped(name).read_text(encoding="utf-8")
            file.write_text(text.replace(_CLONES, f"./{CONTEXT}"), encoding="utf-8")
            written.append(file)
    return written
