"""tritonserver's backend folder and its arguments."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.serve.core.flags import Arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.serve.install import ServerInstallation
    from tritonkit.serve.repository import ServedModel
    from tritonkit.serve.shm import ShmPlan
    from tritonkit.serve.values import Settings

__all__ = ["PREFIX", "arguments", "prepare_backends", "python_run"]

PREFIX = "{prefix}"
"""Stands for the name that the supervisor gives this run's shared-memory regions."""


def prepare_backends(installation: ServerInstallation, python_backends: Path, folder: Path) -> Path:
    """The backend directory to serve from.

    NVIDIA's own is used as it is. For the embedded server a new one is filled with its Python
    backend, the stub of the right Python, and a copy of every `<python_backends>/backends/NAME/`,
    with what those share beside each model.py: a stub looks for modules in its own folder. Real
    files, because Triton refuses a link out of its backend directory.
    """
    if installation.native:
        return installation.backends
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(installation.backends, folder, ignore=skip)
    if installation.stub is not None:
        shutil.copy2(installation.stub, folder / "python")
    shared = sorted((python_backends / "backends").glob("*.py"))
    for source in sorted((python_backends / "backends").glob("*/model.py")):
        shutil.copytree(source.parent, folder / source.parent.name, ignore=skip)
        for module in shared:
            shutil.copy2(module, folder / source.parent.name)
    return folder


def python_run(installation: ServerInstallation, python_backends: Path) -> frozenset[str]:
    """The backends that Python stubs run: `python`, and those made of a model.py."""
    folder = installation.backends if installation.native else python_backends / "backends"
    return frozenset({"python", *(file.parent.name for file in folder.glob("*/model.py"))})


def arguments(
    installation: ServerInstallation, settings: Settings, models: Sequence[ServedModel],
    grpc_port: int, backends: Path, shm: ShmPlan,
) -> list[str]:  # fmt: skip
    """The command line, to be run without a shell; `PREFIX` and the key's placeholder in it are for those
    who start it to fill."""
    cached = any(model.config.response_cache.enable for model in models)
    return Arguments(
        binary=installation.binary,
        repository=settings.repository,
        backends=backends,
        models=[model.name for model in models],
        caches=installation.caches if cached else None,
        limits_rate=any(_limits_rate(model) for model in models),
        drain_s=round(settings.drain_timeout_s),
        prefix=PREFIX,
        region_bytes=shm.default_bytes,
        grpc_host=settings.host,
        grpc_port=grpc_port,
        shared_memory=settings.shared_memory_api,
    ).words()


def _limits_rate(model: ServedModel) -> bool:
    return any(group.HasField("rate_limiter") for group in model.config.instance_group)
