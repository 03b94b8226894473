"""The server environment that `tritonkit server install` makes, below the user's cache folder."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tritonkit.errors import ServerNotFound
from tritonkit.resources import shipped_modules

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "cache_folder",
    "environment_script",
    "install",
    "interpreter",
    "is_damaged",
    "is_for_gpu",
    "is_installed",
    "managed_place",
    "needs",
    "remove",
    "run_from_sources",
    "size_gb",
]


def cache_folder() -> Path:
    """The folder of managed environments, one for each set of requirements."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tritonkit" / "server"


def managed_place() -> Path:
    """The folder of the environment for this tritonkit's requirements; it may not exist yet."""
    name: str = environment_script().fingerprint()
    return cache_folder() / name


def is_installed() -> bool:
    """Whether this tritonkit's environment exists and is complete."""
    return bool(environment_script().is_whole(managed_place()))


def size_gb() -> float:
    """Disk space of the environment that `install` makes without further options, in GB."""
    script = environment_script()
    return float((script.GPU if _wants_gpu(None) else script.CPU).size_gb)


def _wants_gpu(gpu: bool | None) -> bool:
    """Whether `install` makes an environment for a GPU: as its caller says, else as the environment before is."""
    if gpu is not None:
        return gpu
    before = _before()
    return before is not None and is_for_gpu(before)


def _before() -> Path | None:
    """The environment of this tritonkit; after an upgrade the complete one that was made last; None at first."""
    marker = environment_script().MARKER
    if (managed_place() / marker).is_file():
        return managed_place()
    markers = cache_folder().glob(f"*/{marker}")
    return max((file.parent for file in markers), key=lambda folder: (folder / marker).stat().st_mtime, default=None)


def needs(gpu: bool | None = None) -> str:
    """The lines about what `install` would download and write; empty if the environment exists."""
    script, place = environment_script(), managed_place()
    kind = script.GPU if _wants_gpu(gpu) else script.CPU
    if script.kind_of(place) == kind and not is_damaged(place):
        return ""
    as_before = f"{_before()} is for {kind.name}, and so will be the new one: --cpu changes that\n"
    return (as_before if gpu is None and kind.gpu else "") + (
        f"the server environment for {kind.name} takes {kind.size_gb:g} GB at {place}: {kind.download_gb:g} GB are"
        f" downloaded, and {kind.room_gb:g} GB must be free"
    )


def is_damaged(folder: Path) -> bool:
    """Whether `install` would make an environment again: it is incomplete, outdated, or lacks a library."""
    script = environment_script()
    return not script.is_whole(folder) or bool(script.missing_libraries(folder))


def is_for_gpu(folder: Path) -> bool:
    """Whether an environment was made for an NVIDIA GPU."""
    return bool(environment_script().kind_of(folder).gpu)


def install(
    say: Callable[[str], object],
    python: str = "",
    torch: bool = False,
    hashes: bool = True,
    gpu: bool | None = None,
) -> bool:
    """Make the environment unless it exists; return whether anything was done.

    Args:
        say: a function that receives a line about each step.
        python: the interpreter to make it with; by default one is looked for on this machine.
        torch: whether to install PyTorch too, for models served as torchscript, torch-export or a compiled package.
        hashes: whether to refuse files whose hash is not PyPI's.
        gpu: whether it is for an NVIDIA GPU; None keeps what the environment before was for, at first CPUs.

    Raises:
        ServerNotFound: no interpreter fits, the disk is full, or a package cannot be installed.
    """
    script, place = environment_script(), managed_place()
    try:
        return bool(script.make(place, say, python, torch, hashes, _wants_gpu(gpu)))
    except (script.InstallError, OSError) as error:
        raise _not_found(error) from None


def run_from_sources(folder: Path) -> None:
    """Let an environment that an earlier tritonkit made run models only from their sources, if it can be written."""
    with suppress(OSError):
        environment_script().place(folder)


def interpreter() -> tuple[str, str]:
    """Path and version of the Python on this machine that `install` would use.

    Raises:
        ServerNotFound: no interpreter fits.
    """
    script = environment_script()
    try:
        chosen = script.choose(fetch=False)
    except script.InstallError as error:
        raise _not_found(error) from None
    return str(chosen.path), str(chosen.version)


def remove() -> list[Path]:
    """Remove every managed environment, of other versions of tritonkit too; return their folders."""
    folder = cache_folder()
    environments = sorted(path for path in folder.glob("*") if path.is_dir())
    for path in environments:
        (path / environment_script().MARKER).unlink(
            missing_ok=True
        )  # an interrupted removal must leave no complete one
        shutil.rmtree(path)
    return environments


def _not_found(error: Exception) -> ServerNotFound:
    todo = getattr(error, "todo", f"correct the permissions of {cache_folder()}")
    return ServerNotFound("the server environment", found=str(error), todo=todo)


@cache
def environment_script() -> Any:
    """python_backends/environment.py, which the Makefile runs with any Python: it is in no package."""
    return shipped_modules(["python_backends"], "environment")[0]
