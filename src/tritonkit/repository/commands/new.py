"""`tritonkit new` writes a model folder; `tritonkit schema` prints what may stand in one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tritonkit.cli.options import AsJson, Root, project_or_here
from tritonkit.cli.output import note, print_json
from tritonkit.errors import UsageError

__all__ = ["command", "schema"]


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name clients will call.")],
    onnx: Annotated[Path | None, typer.Option("--onnx", metavar="FILE", help="An ONNX file.")] = None,
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
            help="With --torch: an input without its batch axis; a free size as in 'ids=INT64:length(2-64)', or"
            " 'H(32-640/32)' for multiples of 32.",
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --torch: a .safetensors or checkpoint file.")
    ] = None,
    llm: Annotated[
        Path | None,
        typer.Option(
            "--llm", metavar="FOLDER", help="A Hugging Face checkpoint of a language model, with safetensors."
        ),
    ] = None,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Write a model folder that builds and serves; where there is no project, this folder becomes one.

    Example: tritonkit new resnet --torch network:build --input pixels=FP32:3,224,224
    """
    from tritonkit.repository.modelspec import load
    from tritonkit.repository.scaffold import new_from_checkpoint, new_from_onnx, new_from_torch

    project = project_or_here(root)
    _check({"--onnx": onnx, "--torch": torch, "--llm": llm}, {"--input": inputs, "--weights": weights})
    if onnx is not None:
        folder = new_from_onnx(project, name, onnx)
    elif llm is not None:
        folder = new_from_checkpoint(project, name, llm, note)
    else:
        folder = new_from_torch(project, name, torch or "", inputs or (), weights, Path.cwd())
    load(folder, project)
    if as_json:
        print_json({"name": name, "folder": str(folder)})
        return
    for file in sorted(folder.iterdir()):
        note(f"wrote {file.relative_to(project)}")
    note(f"next: tritonkit build {name} && tritonkit serve --model {name}")


def _check(sources: Mapping[str, object], of_torch: Mapping[str, object]) -> None:
    """Exactly one source, and what belongs to --torch with it alone."""
    given = [option for option, value in sources.items() if value is not None]
    if len(given) != 1:
        raise UsageError(
            "tritonkit new", found=" and ".join(given) or "no network", wanted=f"one of {', '.join(sources)}"
        )
    more = [option for option, value in of_torch.items() if value]
    if more and given != ["--torch"]:
        raise UsageError("tritonkit new", found=f"{more[0]} together with {given[0]}", wanted="it only with --torch")


def schema() -> None:
    """Print the JSON schema of model.yaml, for editors.

    Example: tritonkit schema > model.schema.json
    """
    from tritonkit.repository.modelspec import schema_text

    print(schema_text(), end="")
