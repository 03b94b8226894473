"""Make the server's Python environment: `python environment.py .venv-server`.

It holds Triton and the packages that its Python backends import (requirements.txt next to this file), the native guard
and the native backends (native/). This file needs only the standard library, so that any Python can run it. The
environment gets a Python for which everything has a wheel: Triton's Python stub needs numpy below 2, which has none for
3.13.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
LOCK = HERE / "requirements.lock"
"""One version of each required package, with the hashes of its files on PyPI; `make lock` writes it."""
WITH_TORCH = HERE / "requirements-torch.txt"
SITE = HERE / "site"
"""Its files go next to the installed packages."""
NATIVE = Path("lib") / "tritonkit"
GUARD = NATIVE / "guard.so"
_NATIVE = ("onnxruntime", "openvino", "python")
BACKENDS = tuple(NATIVE / f"libtriton_{name}.so" for name in _NATIVE)
MARKER = "tritonkit.json"
"""Marker that is written last: an environment without it was interrupted while it was made."""

SIZE_GB = 0.8
"""Measured: 0.72 GB of files, and the byte code that pip compiles."""

VERSIONS = ((3, 12), (3, 11))
"""Pythons for which Triton has a stub and every requirement a wheel, best first."""

_FREE_BYTES = 2_000_000_000  # the environment, and the wheels while they are unpacked
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

# pip and uv announce a download of a megabyte or more in this form.
_LARGE = re.compile(r" *Downloading (?P<name>\w+(?:-[A-Za-z]\w*)*)[^ ]* \((?P<size>[\d.]+ ?Mi?B)\)")

Say = Callable[[str], object]


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


def fingerprint() -> str:
    """Hash of everything that goes into an environment: its requirements and the native sources."""
    whole = hashlib.sha256(platform.machine().encode())
    for file in (REQUIREMENTS, LOCK, *sorted((HERE / "native").rglob("*.[chp]*"))):
        if "__pycache__" not in file.parts and file.is_file():
            whole.update(file.name.encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()[:16]


def is_whole(folder: Path) -> bool:
    """Whether an environment is complete and was made from these requirements."""
    try:
        facts = json.loads((folder / MARKER).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and facts.get("made_from") == fingerprint()


def make(folder: Path, say: Say, python: str = "", torch: bool = False, hashes: bool = True) -> bool:
    """Make the environment unless it exists and is current; return whether anything was done.

    An interrupted environment is removed, or has no marker and is made again by the next call.

    Args:
        folder: the folder of the environment.
        say: function that takes a line about progress.
        python: the interpreter to use instead of looking for one.
        torch: install requirements-torch.txt too (about 1 GB more), without hashes.
        hashes: install requirements.lock, and no file of another hash; else the versions that requirements.txt allows.

    Raises:
        InstallError: no interpreter fits, the disk is full, or a package cannot be installed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder, say):
        whole, compiled = is_whole(folder), _is_compiled(folder)
        if not whole:
            _make(folder, say, python, LOCK if hashes else REQUIREMENTS)
        elif not compiled:  # there may be a compiler by now
            _compile(folder, say)
        place(folder)
        more = torch and not _has_torch(folder)
        if more:
            say("installing PyTorch (about 1 GB) ...")
            _install(folder, WITH_TORCH, say)
    return more or not whole or not compiled


def _make(folder: Path, say: Say, python: str, requirements: Path) -> None:
    named = choose(python) if python else None  # a wrong one is reported on a full disk, too
    free = shutil.disk_usage(folder.parent).free
    if free < _FREE_BYTES:
        raise InstallError(f"{free / 1e9:.1f} GB free at {folder.parent}", "free 2 GB")
    chosen = named or choose()  # this may fetch one
    say(f"Python {chosen.version} at {chosen.path} ({why(chosen)})")
    if folder.exists():
        say(f"{folder} is incomplete or was made from other requirements: it is made again")
        shutil.rmtree(folder)
    try:
        tool = _create(folder, chosen, say)
        say(f"installing Triton and its Python backends with {tool}, {SIZE_GB} GB ...")
        _install(folder, requirements, say)
        _compile(folder, say)
        facts = {"made_from": fingerprint(), "python": chosen.version}
        draft = folder / f".{MARKER}"
        draft.write_text(json.dumps(facts, indent=1) + "\n")
        os.sync()
        draft.replace(folder / MARKER)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def place(folder: Path) -> None:
    """Put the modules of `site/` next to an environment's packages, where each of its interpreters imports them."""
    for packages in folder.glob("lib/python3.*/site-packages"):
        for file in sorted(SITE.glob("*.p*"), reverse=True):  # modules that a .pth imports are copied before it
            draft = packages / f".{file.name}.{os.getpid()}"
            shutil.copyfile(file, draft)
            draft.replace(packages / file.name)


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


def _create(folder: Path, chosen: Interpreter, say: Say) -> str:
    """An empty environment with pip, and the command that will fill it."""
    uv = shutil.which("uv")
    if uv is not None:
        command = [uv, "venv", "--quiet", "--seed", "--python", chosen.path, str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return "uv"
        say("uv cannot make the environment; using pip")
        shutil.rmtree(folder, ignore_errors=True)
    ran = subprocess.run([chosen.path, "-m", "venv", str(folder)], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise InstallError(_last_line(ran.stdout + ran.stderr), "use another Python with --python")
    return "pip"


def _install(folder: Path, requirements: Path, say: Say) -> None:
    """Install with uv if it exists, and otherwise or after a failure with pip; from wheels only."""
    python = str(folder / "bin" / "python")
    words = ["--only-binary", ":all:", "-r", str(requirements)]
    words += ["--require-hashes"] if requirements == LOCK else []
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *words, "--progress-bar", "off"]
    uv = shutil.which("uv")
    if uv is not None:
        code, text = _run([uv, "pip", "install", "--python", python, "--no-progress", *words], say)
        if code == 0:
            return
        say(f"uv cannot install them; trying pip: {_last_line(text)}")
    code, text = _run(pip, say)
    if code != 0:
        raise _not_installed(requirements, text)


def _not_installed(requirements: Path, text: str) -> InstallError:
    """The error of an installation, which distinguishes an index with other files than PyPI's from an unreachable
    one."""
    other = re.search(r"(?m)^ *(?P<name>[\w.-]+==\S+) .*:\n *Expected sha256", text)
    if other is not None:
        return InstallError(
            f"the package index has another file of {other['name']} than {requirements.name} names: its hash differs",
            "use PyPI or a mirror of it (PIP_INDEX_URL), or --no-hashes if the index has its own builds",
        )
    return InstallError(
        f"{requirements.name} cannot be installed: {_last_line(text)}",
        "let pip reach a package index (PIP_INDEX_URL), and try again",
    )


def _run(command: Sequence[str], say: Say) -> tuple[int, str]:
    """Exit code and output; downloads are reported."""
    lines = []
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "VIRTUAL_ENV": "", "PYTHONPATH": ""},
    ) as process:
        assert process.stdout is not None  # noqa: S101 - requested above
        for line in process.stdout:
            lines.append(line.strip())
            large = _LARGE.match(line)
            if large:
                say(f"  {large['name']} {large['size']}")
    return process.returncode, "\n".join(lines[-40:])


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "×"))]
    return (errors or lines or ["no output"])[-1][:300]


def _is_compiled(folder: Path) -> bool:
    """Make the libraries that can be made; without shipped ones and a C++ compiler, Python stand-ins serve."""
    shipped = HERE / "native" / "prebuilt" / platform.machine()
    possible = shipped.is_dir() or any(map(shutil.which, ("c++", "g++", "clang++")))
    libraries = (GUARD, *(BACKENDS if possible else ()))
    return all((folder / file).is_file() for file in libraries)


def _compile(folder: Path, say: Say) -> None:
    """Copy or compile the libraries that run inside tritonserver, and report the result; serving needs none of them."""
    wrong = _build(folder, "guard")
    say(
        f"guard not compiled: the server runs unguarded; install gcc and libc6-dev, and repeat this ({wrong})"
        if wrong
        else f"guard in place: {folder / GUARD}"
    )
    # Without a compiler they would take minutes: ziglang compiles its C++ library first.
    wrong = _build(folder, *_NATIVE, "--no-download")
    say(
        "native backends not compiled: their Python stand-ins serve, small networks more slowly;"
        f" install g++ and libc6-dev, and repeat this ({wrong})"
        if wrong
        else f"native backends in place: {folder / NATIVE}"
    )


def _build(folder: Path, *words: str) -> str:
    """Run native/build.py; return the reason of a failure in a line, or an empty text."""
    script = HERE / "native" / "build.py"
    ran = subprocess.run(
        [str(folder / "bin" / "python"), str(script), "--venv", str(folder), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return _last_line(ran.stderr) if ran.returncode else ""


def _has_torch(folder: Path) -> bool:
    return next(folder.glob("lib/python3.*/site-packages/torch/__init__.py"), None) is not None


@contextmanager
def _alone(folder: Path, say: Say) -> Iterator[None]:
    """A lock for one installation at a time below a folder; it ends with its process."""
    lock = os.open(folder.parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"another process makes an environment in {folder.parent}: waiting for it ...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def main() -> int:
    """Make the environment that the arguments describe; return 0, or 4 with the reason on stderr."""
    parser = argparse.ArgumentParser(description="Make the server's Python environment.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="", help="the interpreter; by default a suitable one is looked for")
    parser.add_argument("--torch", action="store_true", help="install PyTorch too, about 1 GB")
    parser.add_argument("--no-hashes", action="store_true", help="accept files other than PyPI's")
    arguments = parser.parse_args()
    try:
        done = make(
            arguments.folder.absolute(),
            lambda text: print(text, flush=True),  # noqa: T201
            arguments.python,
            arguments.torch,
            not arguments.no_hashes,
        )
    except (InstallError, OSError) as error:
        todo = f"; {error.todo}" if isinstance(error, InstallError) else ""
        print(f"{arguments.folder}: {error}{todo}", file=sys.stderr)  # noqa: T201
        return 4
    print(f"{arguments.folder}: {'made' if done else 'is current'}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
