"""The tritonserver of this machine, and the environment that it needs to run."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tritonkit.errors import ServerNotFound
from tritonkit.resources import clone, shipped
from tritonkit.serve.core.cuda import provider_of
from tritonkit.serve.core.launch import guard_in
from tritonkit.serve.core.native_backends import NativeBackend, find_native_backends
from tritonkit.serve.core.rest import find_envoy
from tritonkit.serve.libpython import check_glibc, need_libpython
from tritonkit.serve.managed import is_damaged, is_installed, managed_place, size_gb

__all__ = [
    "VENV_VARIABLE",
    "ServerInstallation",
    "environment_at",
    "find_server",
    "how_to_change",
    "how_to_install",
    "how_to_remake",
]

VENV_VARIABLE = "TRITONKIT_SERVER_VENV"
"""The environment variable that names the server's environment, before `<root>/.venv-server`."""

_SOURCES_ALONE = "tritonkit_sources.pth"

# Another environment's packages would come before the server's own; numpy 2 among them makes this
# server pass empty tensors without an error.
_PYTHON_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "VIRTUAL_ENV")


@dataclass(frozen=True)
class ServerInstallation:
    """A tritonserver that can be started.

    Args:
        binary: the executable.
        version: the version of the wheel or the release, from its files.
        backends: folders named after the backends it brings.
        caches: its response caches.
        native: whether this is NVIDIA's own installation, whose backends are used where they are.
        libraries: folders to put first in LD_LIBRARY_PATH.
        python_bin: the folder whose `python3` decides what the stubs can import; None leaves it
            to PATH.
        python: that Python's version, X.Y.
        stub: the `triton_python_backend_stub` for it; None if the backend's folder has it.
        guard: the native guard to preload; None if it was not built.
        envoy: the proxy that guards REST; None if it is not installed.
    """

    binary: Path
    version: str
    backends: Path
    caches: Path
    native: bool
    libraries: tuple[Path, ...] = ()
    python_bin: Path | None = None
    python: str = ""
    stub: Path | None = None
    guard: Path | None = None
    envoy: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The server environment; None in NVIDIA's image."""
        return None if self.native or self.python_bin is None else self.python_bin.parent

    @property
    def for_gpu(self) -> bool:
        """Whether the environment has ONNX Runtime for CUDA."""
        return self.folder is not None and provider_of(self.folder) is not None

    @property
    def runs_sources_alone(self) -> bool:
        """Whether its Python loads models only from their sources, and never a compiled file next to them."""
        places = self.python_bin.parent.glob("lib/python3.*/site-packages") if self.python_bin else ()
        return any((place / _SOURCES_ALONE).is_file() for place in places)

    def native_backends(self) -> dict[str, NativeBackend]:
        """The native backends compiled for the embedded server, by name, each tried with its engine."""
        return {} if self.folder is None else find_native_backends(self.folder, self.libraries[0])

    def environment(self) -> dict[str, str]:
        """The environment variables for the server and everything that it starts."""
        env = {key: value for key, value in os.environ.items() if key not in _PYTHON_VARIABLES}
        # For programs that models start: Triton's stub ignores it (python_backends/site).
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        if self.python_bin is not None:
            env["PATH"] = os.pathsep.join([str(self.python_bin), env.get("PATH", os.defpath)])
        if self.libraries:
            folders = [*map(str, self.libraries), env.get("LD_LIBRARY_PATH", "")]
            env["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
        return env


def find_server(root: Path | None = None) -> ServerInstallation:
    """The server to use: `tritonserver` on PATH (NVIDIA's image), else the server environment.

    That environment is the one that TRITONKIT_SERVER_VENV names. Otherwise it is `.venv-server` below `root`, the
    working directory, or the clone that this package runs from. The last choice is the one that
    `tritonkit server install` made.

    Raises:
        ServerNotFound: no server is installed, or this machine lacks a library that it needs.
    """
    on_path = shutil.which("tritonserver")
    if on_path is not None:
        return _native(Path(on_path).resolve())
    named = os.environ.get(VENV_VARIABLE)
    if named:
        return environment_at(Path(named))
    for place in filter(None, (root, Path.cwd(), clone())):
        if (place / ".venv-server").is_dir():
            return environment_at(place / ".venv-server")
    if is_installed():
        return environment_at(managed_place())
    raise ServerNotFound("Triton", found=f"no server is installed: run `{how_to_install()}` ({size_gb()} GB)")


def environment_at(venv: Path) -> ServerInstallation:
    """The server inside a Python environment that python_backends/environment.py made.

    Raises:
        ServerNotFound: the environment is incomplete, or this machine lacks what it needs.
    """
    venv = venv.resolve()
    package = next(venv.glob("lib/python3.*/site-packages/pytriton/tritonserver"), None)
    if package is None or not (package / "bin" / "tritonserver").is_file():
        raise ServerNotFound(
            str(venv),
            found="the wheel nvidia-pytriton is not installed there",
            wanted="a complete server environment",
            todo=f"remove it, and run: {how_to_install()}",
        )
    packages = package.parents[1]
    python = packages.parent.name.removeprefix("python")
    check_glibc()
    stub = package / "python_backend_stubs" / python / "triton_python_backend_stub"
    if not stub.is_file():
        stubs = sorted(path.name for path in (package / "python_backend_stubs").iterdir())
        raise ServerNotFound(
            str(venv),
            found=f"its Python is {python}, and Triton has no stub for that",
            wanted=f"Python {', '.join(stubs)}",
            todo=f"remove it, and run: {how_to_install()}",
        )
    libpython = need_libpython(python, _own_libraries(venv))
    return ServerInstallation(
        binary=package / "bin" / "tritonserver",
        version=_wheel_version(packages),
        backends=package / "backends",
        caches=package / "caches",
        native=False,
        libraries=(packages / "nvidia_pytriton.libs", libpython.parent),
        python_bin=venv / "bin",
        python=python,
        stub=stub,
        guard=guard_in(venv),
        envoy=find_envoy(venv),
    )


def _native(binary: Path) -> ServerInstallation:
    """The installation in NVIDIA's layout: /opt/tritonserver/{bin,backends,caches,TRITON_VERSION}."""
    home = binary.parents[1]
    backends = home / "backends"
    if not backends.is_dir():
        raise ServerNotFound(
            str(binary),
            found=f"there is no {backends}",
            wanted="tritonserver in NVIDIA's layout",
            todo="take it off PATH, or reinstall it",
        )
    try:
        version = (home / "TRITON_VERSION").read_text().strip()
    except OSError:
        version = "unknown"
    return ServerInstallation(
        binary, version, backends, home / "caches", native=True, guard=guard_in(home), envoy=find_envoy(home)
    )


def _own_libraries(venv: Path) -> tuple[Path, ...]:
    """`lib` of the Python that the environment was made with, from pyvenv.cfg (PEP 405)."""
    try:
        home = re.search(r"(?m)^home *= *(.+)$", (venv / "pyvenv.cfg").read_text())
    except OSError:
        return ()
    return (Path(home[1].strip()).parent / "lib",) if home else ()


def _wheel_version(packages: Path) -> str:
    info = next(packages.glob("nvidia_pytriton-*.dist-info"), None)
    return f"nvidia-pytriton {info.name.split('-')[1].removesuffix('.dist')}" if info else "unknown"


def how_to_install() -> str:
    """The command that makes the server environment: in a clone, or anywhere else."""
    return "tritonkit server install" if clone() is None else "make setup"


def how_to_change(installation: ServerInstallation) -> str:
    """The command that makes a server environment for GPUs in place of one for CPUs."""
    if _is_managed(installation):
        return "tritonkit server install --gpu"
    return f"python3 {shipped('python_backends/environment.py')} {installation.folder} --gpu"


def how_to_remake(installation: ServerInstallation) -> str:
    """The commands that make a server environment for GPUs again: one that seems complete is to be removed first."""
    if installation.folder is not None and is_damaged(installation.folder):
        return how_to_change(installation)
    if _is_managed(installation):
        return "tritonkit server remove && tritonkit server install --gpu"
    return f"remove {installation.folder}, then {how_to_change(installation)}"


def _is_managed(installation: ServerInstallation) -> bool:
    return installation.folder is None or installation.folder == managed_place().resolve()
