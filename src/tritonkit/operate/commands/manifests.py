"""`tritonkit manifests`: the limits of a container, computed from the repository."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.options import Repository, Root, project_folder
from tritonkit.cli.output import note, print_json
from tritonkit.disk import unwritable, write_whole
from tritonkit.errors import RenderError
from tritonkit.resources import shipped

if TYPE_CHECKING:
    from tritonkit.serve.manifests import ContainerNeeds

__all__ = ["ManifestTarget", "command", "write_resources"]


class ManifestTarget(StrEnum):
    """The program that reads the file."""

    compose = "compose"


_FILES = {ManifestTarget.compose: Path("deploy/docker/resources.yml")}


def command(
    target: Annotated[ManifestTarget, typer.Option(help="The program that reads it.")] = ManifestTarget.compose,
    repository: Repository = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; deploy/docker/resources.yml by default.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Fail if the file differs; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON; write nothing.")] = False,
    root: Root = None,
) -> None:
    """Write the limits of the container that serves the repository: memory and shared memory.

    Example: tritonkit manifests --target compose --check
    """
    project = project_folder(root)
    folder = (repository or project / "model_repository").resolve()
    file = out or project / _FILES[target]
    if as_json:
        print_json(asdict(_needs(folder)))
        return
    text = _text(folder)
    now = file.read_text() if file.is_file() else ""
    if check and now != text:
        raise RenderError(
            str(file),
            found="it differs from what the repository needs",
            todo="tritonkit manifests --target compose, and commit what it wrote",
        )
    if now == text:
        note(f"{file}: nothing to change")
    else:
        _write(file, text)
        note(f"wrote {file}")


def write_resources(project: Path) -> Path:
    """Write the resources of a container that serves the project's repository; returns the file."""
    file = project / _FILES[ManifestTarget.compose]
    _write(file, _text(project / "model_repository"))
    return file


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode())
    except OSError as error:
        raise unwritable(file, error, RenderError) from error


def _needs(repository: Path) -> ContainerNeeds:
    from tritonkit.serve import read_models
    from tritonkit.serve.command import python_run
    from tritonkit.serve.manifests import container_needs

    return container_needs(read_models(repository), python_run(shipped("python_backends/backends")))


def _text(repository: Path) -> str:
    from tritonkit.serve.manifests import compose_text

    return compose_text(_needs(repository), repository.name, _cores(repository))


def _cores(repository: Path) -> int | None:
    """The cores that the repository's configuration was rendered for; None if no file says so."""
    from tritonkit.repository.publish.existing import recorded_cores

    specs = sorted(file.parent.name for file in repository.glob("*/config.pbtxt"))
    return next((cores for cores in (recorded_cores(repository, s) for s in specs) if cores), None)
