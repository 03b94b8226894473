"""`tritonkit deploy image`: the models as an image, from which pods take them."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tritonkit.cli.options import AsJson, Repository, Root, project_or_here
from tritonkit.cli.output import byte_bar, note, print_json, print_line

if TYPE_CHECKING:
    from tritonkit.operate.deploy.image import ModelImage

__all__ = ["command"]


class ImageBuilder(StrEnum):
    """The program that makes images."""

    docker = "docker"
    buildah = "buildah"


def command(
    tag: Annotated[
        str, typer.Option(metavar="NAME:TAG", help="Name of the image; give every version a tag of its own.")
    ],
    repository: Repository = None,
    server: Annotated[
        str, typer.Option(metavar="NAME:TAG", help="The server's image, to build on.")
    ] = "tritonkit/server:0.1.0",
    builder: Annotated[
        ImageBuilder | None, typer.Option(help="Program that builds it; docker by default, or else buildah.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="TAR", help="Also write it to a file, for nodes without a registry.")
    ] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Put the repository into an image, for `models: {image: NAME:TAG}` in values.yaml.

    Every file is checked against its manifest first. Only files that are served go in.

    Example: tritonkit deploy image --tag tritonkit/models:1
    """
    from tritonkit.cli.started import recovered
    from tritonkit.operate.deploy.image import build_image

    folder = (repository or project_or_here(root) / "model_repository").resolve()
    with byte_bar("verifying") as shown:
        made = build_image(
            recovered(folder), tag, server, builder=builder.value if builder else None, out=out, progress=shown
        )
    if as_json:
        facts = {
            "image": made.tag,
            "id": made.id,
            "models": made.models,
            "files": made.files,
            "size_bytes": made.size_bytes,
            "out": str(out) if out else None,
        }
        print_json(facts)
        return
    _print(made, server)


def _print(made: ModelImage, server: str) -> None:
    from tritonkit.repository.modelspec.units import format_bytes

    print_line(f"{made.tag}: {made.id[:12]}")
    note(f"{made.files} files of {len(made.models)} models ({format_bytes(made.size_bytes)})")
    for line in _next(made, server):
        note(line)


def _next(made: ModelImage, server: str) -> list[str]:
    """The commands that bring the image to the nodes and make pods use it."""
    host, _, rest = made.tag.partition("/")
    if made.out is not None:
        file = shlex.quote(str(made.out))
        way = f"on each node: ctr --namespace k8s.io images import {file} (and the same for {server})"
    elif rest and ("." in host or ":" in host):
        way = f"docker push {made.tag}"
    else:
        way = (
            f"kind load docker-image {server} {made.tag}, or --out TAR for other nodes, or a name of"
            " your registry and a push"
        )
    return [f"next: {way}", f"then: models: {{image: '{made.tag}'}} in values.yaml, tritonkit deploy, kubectl apply -k"]
