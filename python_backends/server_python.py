"""The Python to make the server's environment with: one for which everything has a wheel.

Triton's Python stub needs numpy below 2, which has none for 3.13. This file needs only the standard library.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ((3, 12), (3, 11))
"""Pythons for which Triton has a stub and every requirement a wheel, best first."""

_PROBE = """
import ctypes, json, platform, sys
import ensurepip, venv
library = f"libpython{sys.version_info[0]}.{sys.version_info[1]}.so.1.0"
try:
    ctypes.CDLL(library)
    shared = True
except OSError:
    import os
    shared = os.path.isfile(os.path.join(sys.base_prefix, "lib", library))
# Of a virtual environment its base: that one may be removed.
program = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps([program, list(sys.version_info[:2]), platform.python_version(), shared]))
"""


class InstallError(Exception):
    """The environment cannot be made: the text says what was found, and `todo` what to do."""

    def __init__(self, found: str, todo: str) -> None:
        super().__init__(found)
        self.todo = todo


@dataclass(frozen=True)
class Interpreter:
    """A Python with which the environment can be made; `shared` says whether its libpython exists."""

    path: str
    version: str
    shared: bool


def why(chosen: Interpreter) -> str:
    """The reason for choosing this interpreter, in a few words."""
    running = ".".join(map(str, sys.version_info[:2]))
    versions = " or ".join(".".join(map(str, version)) for version in sorted(VERSIONS))
    if chosen.version.startswith(f"{running}."):
        return "as this one"
    return f"not {running}: the server's numpy has wheels for {versions}"


def choose(python: str = "", fetch: bool = True) -> Interpreter:
    """The interpreter for the environment: the named one, this one, one on PATH or of pyenv, or one that uv may fetch.

    Raises:
        InstallError: none fits.
    """
    versions = " or ".join(".".join(map(str, version)) for version in sorted(VERSIONS))
    if python:
        chosen = _probe(shutil.which(python) or python)
        if chosen is None:
            raise InstallError(f"{python} is not a Python {versions} with venv", f"name a Python {versions}")
        return chosen
    fitting = []
    for candidate in _candidates():
        chosen = _probe(candidate)
        if chosen is not None and chosen.shared:
            return chosen
        fitting += [chosen] if chosen else []
    fetched = _from_uv() if fetch else None
    if fetched is not None:
        return fetched
    if fitting:  # `serve` says which package has its library
        return fitting[0]
    raise InstallError(
        f"no Python {versions} with venv on this machine, and Triton's Python stub needs numpy below 2,"
        " which has no wheel for others",
        "install one (apt-get install python3.12-venv libpython3.12), or uv, which fetches one (pip install uv)",
    )


def _candidates() -> Iterator[str]:
    yield sys.executable
    names = [f"python{major}.{minor}" for major, minor in VERSIONS]
    for name in names:
        for folder in os.get_exec_path():
            if os.access(os.path.join(folder, name), os.X_OK):  # noqa: PTH118
                yield os.path.join(folder, name)  # noqa: PTH118
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for name in names:
        yield from map(str, sorted(pyenv.glob(f"*/bin/{name}"), reverse=True))


def _probe(path: str) -> Interpreter | None:
    """The Python of an interpreter; None if it does not run, has another version or cannot make environments."""
    try:
        ran = subprocess.run([path, "-I", "-c", _PROBE], capture_output=True, text=True, check=False, timeout=60)
        program, number, version, shared = json.loads(ran.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Interpreter(program, version, shared) if tuple(number) in VERSIONS else None


def _from_uv() -> Interpreter | None:
    uv = shutil.which("uv")
    if uv is None:
        return None
    name = ".".join(map(str, VERSIONS[0]))
    subprocess.run([uv, "python", "install", name], capture_output=True, check=False)
    done = subprocess.run([uv, "python", "find", "--managed-python", name], capture_output=True, text=True, check=False)
    return _probe(done.stdout.strip()) if done.returncode == 0 else None
