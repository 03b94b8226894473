"""`tritonkit new` writes a model folder; `tritonkit schema` prints what may stand in one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritonkit.cli.options import AsJson, Root, project_or_here
from tritonkit.cli.output import note, print_json
from tritonkit.errors import UsageError

__all__ = ["command", "schema"]


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name clients will call.")],
    onnx: Annotated[
        Path | None, typer.Option("--onnx", metavar="FILE", help="An ONNX file.")
    ] = None,
    torch: Annotated[
        str | None,
        typer.Option(
            "--torch",
            metavar="MODULE:FACTORY",
            help="Returns a torch.nn.Module; a Python file here (it is copied) or an installed module.",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=DTYPE:SHAPE",
            help="With --torch: an input without its batch axis; a free size as in 'ids=INT64:length(2-64)'.",
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --torch: a .safetensors or checkpoint file."),
    ] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Write a model folder that builds and serves; where there is no project, this folder becomes one.

    Example: tritonkit new resnet --torch network:build --input pixels=FP32:3,224,224
    """
    from tritonkit.scaffold import new_from_onnx, new_from_torch
    from tritonkit.spec import load

    project = project_or_here(root)
    if (onnx is None) == (torch is None):
        raise UsageError(
            "tritonkit new", found="both or neither of --onnx and --torch", wanted="one of them"
        )
    if onnx is not None and (inputs or weights):
        raise UsageError(
            "tritonkit new",
            found="--input or --weights beside --onnx",
            wanted="them with --torch alone",
        )
    if onnx is not None:
        folder = new_from_onnx(project, name, onnx)
    else:
        folder = new_from_torch(project, name, torch or "", inputs or (), weights, Path.cwd())
    load(folder, project)
    if as_json:
        print_json({"name": name, "folder": str(folder)})
        return
    for file in sorted(folder.iterdir()):
        note(f"wrote {file.relative_to(project)}")
    note(f"next: tritonkit build {name} && tritonkit serve --model {name}")


def schema() -> None:
    """Print the JSON schema of model.yaml, for editors.

    Example: tritonkit schema > model.schema.json
    """
    from tritonkit.spec import schema_text

    print(schema_text(), end="")
