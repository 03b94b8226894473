"""tritonserver's backend folder and its arguments."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import ServerNotFound, UsageError
from tritonkit.resources import shipped
from tritonkit.serve.core.flags import GRPC_FLAGS, POOL_FLAGS, server_arguments
from tritonkit.serve.core.native_backends import ENGINES, backend_flags
from tritonkit.serve.engines import engines_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tritonkit.serve.core.native_backends import NativeBackend
    from tritonkit.serve.core.pools import Pools
    from tritonkit.serve.install import ServerInstallation
    from tritonkit.serve.repository import ServedModel
    from tritonkit.serve.shm import ShmPlan
    from tritonkit.serve.values import Settings

__all__ = ["CONFIG_FLAG", "PREFIX", "arguments", "prepare_backends", "python_run", "usable_backends", "without_own"]

CONFIG_FLAG = "model-config-name"
PREFIX = "{prefix}"
"""Placeholder for the name that the supervisor gives this run's shared-memory regions."""


def usable_backends(backends: Mapping[str, NativeBackend], *, demanded: bool) -> tuple[NativeBackend, ...]:
    """The native backends to serve with.

    Args:
        backends: the compiled native backends, by name.
        demanded: whether each must be usable.

    Raises:
        ServerNotFound: a demanded backend cannot be used.
    """
    for name in ENGINES if demanded else ():
        wrong = backends[name].wrong if name in backends else "it is not compiled"
        if wrong:
            raise ServerNotFound(
                f"the native backend {name}",
                found=wrong,
                wanted="a usable native backend",
                todo="see `tritonkit doctor`, or serve with --backend auto",
            )
    return tuple(backend for backend in backends.values() if not backend.wrong)


def without_own(backends: Mapping[str, NativeBackend], stand_ins: Path) -> dict[str, NativeBackend]:
    """The same backends; one for which the project has its own Python backend is marked as unusable.

    Args:
        backends: the compiled native backends, by name.
        stand_ins: the folder of Python backends to serve with, the project's or tritonkit's.
    """
    ours = shipped("python_backends/backends")
    return {
        name: replace(backend, wrong=f"the project has its own, {stand_ins / name}")
        if (stand_ins / name).exists() and (stand_ins / name).resolve() != (ours / name).resolve()
        else backend
        for name, backend in backends.items()
    }


def prepare_backends(
    installation: ServerInstallation, stand_ins: Path, folder: Path, native: Collection[NativeBackend] = ()
) -> Path:
    """The backend directory to serve from.

    NVIDIA's own is used as it is. For the embedded server a new one is filled with its Python
    backend, the stub of the right Python and the native backends. Each other backend is a copy of
    `<stand_ins>/NAME/`, with the shared modules next to its model.py: a stub looks for modules in its own
    folder. All are real files, because Triton refuses a link out of its backend directory.
    """
    if installation.native:
        return installation.backends
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(installation.backends, folder, ignore=skip)
    if installation.stub is not None:
        shutil.copy2(installation.stub, folder / "python")
    for backend in native:
        (folder / backend.name).mkdir(exist_ok=True)
        shutil.copy2(backend.library, folder / backend.name)
    shared = sorted(stand_ins.glob("*.py"))
    for source in sorted(stand_ins.glob("*/model.py")):
        if (folder / source.parent.name).exists():
            continue
        shutil.copytree(source.parent, folder / source.parent.name, ignore=skip)
        for module in shared:
            shutil.copy2(module, folder / source.parent.name)
    return folder


def python_run(backends: Path) -> frozenset[str]:
    """The backends that Python stubs run: `python`, and the backends in a folder that consist of a model.py."""
    return frozenset({"python", *(file.parent.name for file in backends.glob("*/model.py"))})


def arguments(
    installation: ServerInstallation,
    settings: Settings,
    models: Sequence[ServedModel],
    grpc_port: int,
    backends: Path,
    shm: ShmPlan,
    native: Collection[NativeBackend] = (),
    config: str = "",
    loaded: Sequence[str] | None = None,
    pools: Pools | None = None,
) -> list[str]:
    """The command line; the code that starts it fills in `PREFIX` and the key's placeholder.

    Args:
        config: the name of the models' configurations for this server's cores; the user's own flag takes precedence.
        loaded: names of the models to load at the start; all by default.
        pools: Triton's pools of memory, if a model runs on a GPU.

    Raises:
        UsageError: the user gave a flag that is set here.
    """
    cached = any(model.config.response_cache.enable for model in models)
    common = server_arguments(
        binary=installation.binary,
        repository=settings.repository,
        backends=backends,
        models=[model.name for model in models] if loaded is None else loaded,
        caches=installation.caches if cached else None,
        limits_rate=any(group.HasField("rate_limiter") for model in models for group in model.config.instance_group),
        drain_s=round(settings.drain_timeout_s),
        prefix=PREFIX,
        region_bytes=shm.default_bytes,
        grpc_host=settings.host,
        grpc_port=grpc_port,
        shared_memory=settings.shared_memory_api,
        config="" if CONFIG_FLAG in settings.triton_flags else config,
        pinned_bytes=pools.pinned_bytes if pools else 0,
        cuda_bytes=pools.cuda_bytes if pools else {},
    )
    replaced = tuple(f"--{name}=" for name in (*GRPC_FLAGS, *POOL_FLAGS) if name in settings.triton_flags)
    words = [
        word
        for word in [*common, *backend_flags(native, engines_of(settings.project))]
        if not word.startswith(replaced)
    ]
    return [*words, *_own_flags(settings.triton_flags, words)]


def _own_flags(flags: Mapping[str, str | int], words: Sequence[str]) -> list[str]:
    """The user's flags as arguments. Flags that are set here keep the server closed, and users cannot set them."""
    for name in flags:
        if any(word.partition("=")[0] == f"--{name}" for word in words):
            raise UsageError(
                f"triton_flags: {name}",
                found="a flag that tritonkit sets itself",
                wanted="other flags of tritonserver",
                todo="remove it",
            )
    return [f"--{name}={value}" for name, value in flags.items()]
