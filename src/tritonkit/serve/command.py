"""What tritonserver is told: its backend folder and its arguments."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.serve.core.flags import closed_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tritonkit.serve.install import ServerInstallation
    from tritonkit.serve.repository import ServedModel
    from tritonkit.serve.shm import ShmPlan
    from tritonkit.serve.values import Settings

__all__ = ["CACHE_BYTES", "PREFIX", "arguments", "prepare_backends", "python_run"]

PREFIX = "{prefix}"
"""Stands for the name that the supervisor gives this run's shared-memory regions."""

CACHE_BYTES = 64 << 20
"""The response cache, in the server's own memory."""


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
    flags = {
        "model-repository": settings.repository,
        "backend-directory": backends,
        "model-control-mode": "explicit",
        # With one bad model the others still come up, and Triton can be asked which one it was.
        "exit-on-error": "false",
        "exit-timeout-secs": round(settings.drain_timeout_s),
    }
    if not _has_gpu():
        flags |= {"allow-gpu-metrics": "false", "pinned-memory-pool-byte-size": 0}
    if any(model.config.response_cache.enable for model in models):
        flags |= {
            "cache-directory": installation.caches,
            "cache-config": f"local,size={CACHE_BYTES}",
        }
    if any(_limits_rate(model) for model in models):
        flags["rate-limit"] = "execution_count"
    return [
        str(installation.binary),
        "--disable-auto-complete-config",
        *(f"--{name}={value}" for name, value in flags.items()),
        *closed_flags(settings.host, grpc_port, shared_memory=settings.shared_memory_api),
        *(f"--load-model={model.name}" for model in models),
        # What `python` is told holds for the backends made of Python too (tried on 2.51).
        f"--backend-config=python,shm-region-prefix-name={PREFIX}",
        f"--backend-config=python,shm-default-byte-size={shm.default_bytes}",
    ]


def _has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def _limits_rate(model: ServedModel) -> bool:
    return any(group.HasField("rate_limiter") for group in model.config.instance_group)
