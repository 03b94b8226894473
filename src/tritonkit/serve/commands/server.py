"""`tritonkit server`: the environment that Triton and its Python backends run in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tritonkit.cli.options import AsJson, Root, project_or_here
from tritonkit.cli.output import note, print_json, print_line
from tritonkit.errors import ServerError, UsageError

__all__ = ["app"]

app = typer.Typer(
    help="Install, find or remove the environment that Triton runs in.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def install(
    python: Annotated[
        str,
        typer.Option(metavar="PROGRAM", help="Python 3.11 or 3.12 to make it with; by default one is found."),
    ] = "",
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Make it for an NVIDIA GPU (CUDA 13, driver 580); by default as it was.")
    ] = False,
    cpu: Annotated[bool, typer.Option("--cpu", help="Make it for CPUs; by default as it was, CPUs at first.")] = False,
    torch: Annotated[
        bool,
        typer.Option(
            "--torch",
            help="Install PyTorch too (0.2 GB as a build for CPUs; with --gpu 1.5), for torchscript, torch-export and"
            " compiled packages.",
        ),
    ] = False,
    hashes: Annotated[
        bool,
        typer.Option(
            "--hashes/--no-hashes", help="Refuse files whose hashes are not PyPI's, or allow an index's own builds."
        ),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Install Triton and what its Python backends import, below your cache folder.

    uv installs it if it is on PATH, otherwise venv and pip; only wheels are installed. An interrupted
    installation is not used, and the environment that was there serves until the new one is complete.

    Example: tritonkit server install --gpu
    """
    from tritonkit.serve.managed import install, is_for_gpu, managed_place, needs

    if gpu and cpu:
        raise UsageError("tritonkit server install", found="--gpu and --cpu", wanted="one of them, or neither")
    place, for_gpu = managed_place(), True if gpu else False if cpu else None
    if text := needs(for_gpu):
        note(text)
    done = install(note, python, torch, hashes, for_gpu)
    if as_json:
        print_json({"path": str(place), "changed": done, "gpu": is_for_gpu(place)})
    else:
        note(f"installed: {place}" if done else f"{place}: nothing to change")
        _name_another(place, gpu)


def _name_another(place: Path, gpu: bool) -> None:
    """Name the server that commands in this folder take instead of the installed one, such as a clone's own."""
    from tritonkit.serve import find_server
    from tritonkit.serve.install import how_to_change

    try:
        server = find_server(project_or_here(None))
    except ServerError as error:  # as `doctor` reports it
        note(str(error))
        return
    if server.folder != place.resolve():
        change = f"; for a GPU: {how_to_change(server)}" if gpu and server.folder is not None else ""
        note(f"commands in this folder take {server.folder or server.binary} instead, which goes before it{change}")


@app.command()
def path(as_json: AsJson = False, root: Root = None) -> None:
    """Print the folder of the server environment that `serve` would use.

    Example: tritonkit server path --json
    """
    from tritonkit.serve import find_server
    from tritonkit.serve.managed import managed_place

    server = find_server(project_or_here(root))
    folder = server.python_bin.parent if server.python_bin else server.binary.parents[1]
    if as_json:
        managed = folder == managed_place()
        facts = {"path": str(folder), "managed": managed, "version": server.version}
        print_json(facts | {"python": server.python, "guard": str(server.guard or "")})
    else:
        print_line(str(folder))


@app.command()
def remove(as_json: AsJson = False) -> None:
    """Remove what `tritonkit server install` installed, by other versions of tritonkit too.

    Example: tritonkit server remove
    """
    from tritonkit.serve.managed import cache_folder, remove

    removed = remove()
    if as_json:
        print_json({"removed": [str(folder) for folder in removed]})
    elif removed:
        note("\n".join(f"removed {folder}" for folder in removed))
    else:
        note(f"{cache_folder()}: nothing to remove")
