"""`tritonkit new` writes a model folder; `tritonkit schema` prints the schema of its model.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tritonkit.cli.fields import expanded
from tritonkit.cli.options import AsJson, Root, project_or_here
from tritonkit.cli.output import note, print_json
from tritonkit.errors import UsageError
from tritonkit.option import Option

__all__ = ["command", "schema"]


@dataclass(frozen=True)
class NetworkOptions:
    """The network of a new model."""

    onnx: Annotated[Path | None, Option("An ONNX file.", metavar="FILE")] = None
    op_library: Annotated[
        Sequence[str] | None, Option("With --onnx: a library with custom operators of the file.", metavar="FILE")
    ] = None
    torch: Annotated[
        str | None,
        Option(
            "Returns a torch.nn.Module; a Python file here (it is copied) or an installed module.",
            metavar="MODULE:FACTORY",
        ),
    ] = None
    file: Annotated[
        Path | None,
        Option(
            "A file that is served as it is: TorchScript (.pt), torch.export (.pt2), OpenVINO (.xml).", metavar="FILE"
        ),
    ] = None
    triton: Annotated[
        Path | None, Option("A model in Triton's layout (config.pbtxt), served as it is.", metavar="FOLDER")
    ] = None
    keras: Annotated[
        Path | None,
        Option("A network of Keras 3 (.keras) or a SavedModel (a folder), which becomes ONNX.", metavar="FILE"),
    ] = None
    inputs: Annotated[
        Sequence[str] | None,
        Option(
            "With --torch, or --file of TorchScript: an input without its batch axis; a free size as in"
            " 'ids=INT64:length(2-64)', or 'H(32-640/32)' for multiples of 32.",
            name="--input",
            metavar="NAME=DTYPE:SHAPE",
        ),
    ] = None
    weights: Annotated[Path | None, Option("With --torch: a .safetensors or checkpoint file.", metavar="FILE")] = None
    hf: Annotated[
        Path | None,
        Option("A Hugging Face checkpoint of an encoder, with safetensors: texts, images or audio.", metavar="FOLDER"),
    ] = None
    llm: Annotated[
        Path | None, Option("A Hugging Face checkpoint of a language model, with safetensors.", metavar="FOLDER")
    ] = None
    tree: Annotated[
        Path | None,
        Option(
            "Trees of XGBoost (JSON, UBJSON), LightGBM (text) or CatBoost (JSON, ONNX), or a scikit-learn pipeline"
            " (skops, ONNX).",
            metavar="FILE",
        ),
    ] = None
    missing: Annotated[
        float | None,
        Option("With --tree: a number that means a missing value, as XGBoost's `missing`; NaN always does."),
    ] = None
    fp32: Annotated[
        bool,
        Option(
            "With --tree, for LightGBM: columns as FP32 instead of FP64. Answers are LightGBM's for numbers that FP32"
            " holds, and the FIL backend can run the trees."
        ),
    ] = False


@expanded("new")
def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name clients will call.")],
    network: NetworkOptions,
    as_json: AsJson = False,
    root: Root = None,
) -> None:
    """Write a model folder that builds and serves; where there is no project, this folder becomes one.

    Example: tritonkit new resnet --torch network:build --input pixels=FP32:3,224,224
    """
    from tritonkit.repository.modelspec import load

    project = project_or_here(root)
    _check(network)
    folders = _made(network, project, name)
    for folder in folders:
        load(folder, project)
    if as_json:
        for folder in folders:
            print_json({"name": folder.name, "folder": str(folder)})
        return
    for file in (file for folder in folders for file in sorted(folder.iterdir())):
        note(f"wrote {file.relative_to(project)}")
    build = f"tritonkit build {' '.join(folder.name for folder in folders)}"
    serve = f"tritonkit serve {' '.join(f'--model {folder.name}' for folder in folders)}"
    if network.llm is None and _serves_on_gpu(project):
        build, serve = f"{build} --target gpu", f"{serve} --repository model_repository_gpu"
    note(f"next: {build} && {serve}")


def _serves_on_gpu(project: Path) -> bool:
    """Whether the server environment for the project is the one for GPUs."""
    from tritonkit.errors import ServerError
    from tritonkit.serve import find_server

    try:
        return find_server(project).for_gpu
    except (ServerError, OSError):  # which `serve` says
        return False


def _made(network: NetworkOptions, project: Path, name: str) -> list[Path]:
    """The folders of a new model."""
    from tritonkit.repository import scaffold

    taken = network.inputs or ()
    if network.hf is not None:
        return scaffold.new_from_hf(project, name, network.hf, note)
    if network.llm is not None:
        return [scaffold.new_from_checkpoint(project, name, network.llm, note)]
    if network.onnx is not None:
        return [
            scaffold.new_from_onnx(
                project, name, network.onnx, libraries=[Path(one) for one in network.op_library or ()]
            )
        ]
    if network.file is not None:
        return [scaffold.new_from_file(project, name, network.file, taken)]
    if network.triton is not None:
        return [scaffold.new_from_triton(project, name, network.triton)]
    if network.keras is not None:
        return [scaffold.new_from_keras(project, name, network.keras, note)]
    if network.tree is not None:
        return [scaffold.new_from_tree(project, name, network.tree, network.missing, note, fp32=network.fp32)]
    return [scaffold.new_from_torch(project, name, network.torch or "", taken, network.weights, Path.cwd())]


def _check(network: NetworkOptions) -> None:
    """UsageError unless there is one source, and the options of a source come with it."""
    names = ("onnx", "torch", "hf", "llm", "tree", "keras", "file", "triton")
    sources = {f"--{name}": getattr(network, name) for name in names}
    named = [option for option, value in sources.items() if value is not None]
    if len(named) != 1:
        raise UsageError(
            "tritonkit new", found=" and ".join(named) or "no network", wanted=f"one of {', '.join(sources)}"
        )
    more = {
        "--input": (("--torch", "--file"), bool(network.inputs)),
        "--weights": (("--torch",), network.weights is not None),
        "--missing": (("--tree",), network.missing is not None),
        "--op-library": (("--onnx",), bool(network.op_library)),
        "--fp32": (("--tree",), network.fp32),
    }
    for option, (takers, is_given) in more.items():
        if is_given and named[0] not in takers:
            only = " or ".join(takers)
            raise UsageError(
                "tritonkit new",
                found=f"{option} together with {named[0]}",
                wanted=f"it only with {only}",
            )


def schema() -> None:
    """Print the JSON schema of model.yaml, for editors.

    Example: tritonkit schema > model.schema.json
    """
    from tritonkit.repository.modelspec import schema_text

    print(schema_text(), end="")
