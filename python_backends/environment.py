"""Make the server's Python environment: `python environment.py .venv-server`, for an NVIDIA GPU with `--gpu`.

It holds Triton and the packages that its Python backends import (requirements.txt or requirements-gpu.txt next to this
file), the native guard and the native backends (native/). This file needs only the standard library, so that any Python
can run it.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server_kinds import BASE, COMMON, CPU, GPU, Kind
from server_packages import Say, create, install, last_line
from server_python import InstallError, choose, why

HERE = Path(__file__).resolve().parent
SITE = HERE / "site"
"""Its files go next to the installed packages."""
NATIVE = Path("lib") / "tritonkit"
GUARD = NATIVE / "guard.so"
_NATIVE = ("onnxruntime", "openvino", "python")
BACKENDS = tuple(NATIVE / f"libtriton_{name}.so" for name in _NATIVE)
MARKER = "tritonkit.json"
"""Marker that is written last: an environment without it was interrupted while it was made."""

_LIBRARIES = ("nvidia/*/lib/*.so*", "onnxruntime/capi/libonnxruntime_providers_*.so")
"""Libraries without which no GPU is used."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # fcntl.h, linux/fs.h


def fingerprint(kind: Kind = CPU) -> str:
    """Hash of everything that goes into an environment: its requirements and the native sources."""
    whole = hashlib.sha256(platform.machine().encode())
    for file in (BASE, kind.requirements, COMMON, kind.lock, *sorted((HERE / "native").rglob("*.[chp]*"))):
        if "__pycache__" not in file.parts and file.is_file():
            whole.update(file.name.encode() + b"\0" + file.read_bytes())
    return whole.hexdigest()[:16]


def is_whole(folder: Path) -> bool:
    """Whether an environment is complete and was made from the requirements of its kind."""
    return _facts(folder).get("made_from") == fingerprint(kind_of(folder))


def missing_libraries(folder: Path) -> list[str]:
    """The libraries for a GPU that an environment was made with and no longer has."""
    libraries = _facts(folder).get("libraries")
    names = libraries if isinstance(libraries, list) else []
    return [Path(name).name for name in names if isinstance(name, str) and not (folder / name).is_file()]


def kind_of(folder: Path) -> Kind:
    """The kind of an environment, by its marker; CPU if there is none."""
    return GPU if _facts(folder).get("gpu") == GPU.gpu else CPU


def _facts(folder: Path) -> dict[str, object]:
    try:
        facts = json.loads((folder / MARKER).read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def make(
    folder: Path,
    say: Say,
    python: str = "",
    torch: bool = False,
    hashes: bool = True,
    gpu: bool | None = None,
) -> bool:
    """Make the environment unless it exists and is current; return whether anything was done.

    It is made next to its place and then exchanged with what is there: until then, and after a failure, the environment
    that was there serves.

    Args:
        folder: the folder of the environment.
        say: function that takes a line about progress.
        python: the interpreter to use instead of looking for one.
        torch: install PyTorch too, without hashes.
        hashes: install the lock, and no file of another hash; else the versions that the requirements allow.
        gpu: whether it is for an NVIDIA GPU; None keeps what it is for, and a new one is for CPUs.

    Raises:
        InstallError: no interpreter fits, the disk is full, or a package cannot be installed.
    """
    if folder.is_symlink():  # it stays, and what it names is replaced
        folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder, say):
        _tidy(folder)
        kind = kind_of(folder) if gpu is None else GPU if gpu else CPU
        whole = is_whole(folder) and kind_of(folder) == kind and not missing_libraries(folder)
        compiled = _is_compiled(folder)
        more = torch and not (whole and _has_torch(folder, kind))
        if not whole:
            room_gb = kind.room_gb + (kind.torch_room_gb if more else 0)
            _make(folder, say, python, kind, kind.lock if hashes else kind.requirements, room_gb)
        elif not compiled:  # there may be a compiler by now
            _compile(folder, say)
        place(folder)
        if more:
            _add_torch(folder, say, kind)
    return more or not whole or not compiled


def _add_torch(folder: Path, say: Say, kind: Kind) -> None:
    _hold_to_room(folder, kind.torch_room_gb)
    say(f"installing PyTorch: {kind.torch_download} to download ...")
    install(folder, kind.torch, say)
    if not _has_torch(folder, kind):  # pip keeps one that was there
        raise InstallError(
            "PyTorch is there, and has no CUDA", f"{folder}/bin/python -m pip uninstall torch, and install again"
        )


def _hold_to_room(folder: Path, room_gb: float) -> None:
    free_gb = shutil.disk_usage(folder.parent).free / 1e9
    if free_gb < room_gb:
        raise InstallError(f"{free_gb:.1f} GB free at {folder.parent}", f"free {room_gb:g} GB")


def _make(folder: Path, say: Say, python: str, kind: Kind, requirements: Path, room_gb: float) -> None:
    named = choose(python) if python else None  # a wrong one is reported on a full disk, too
    _hold_to_room(folder, room_gb)
    chosen = named or choose()  # this may fetch one
    say(f"Python {chosen.version} at {chosen.path} ({why(chosen)})")
    if folder.exists():
        say(_replacement(folder, kind))
    draft = _draft(folder)
    try:
        tool = create(draft, chosen, say)
        say(
            f"installing Triton and its Python backends for {kind.name} with {tool}: {kind.download_gb:g} GB to"
            f" download, {kind.size_gb:g} GB on the disk ..."
        )
        install(draft, requirements, say)
        _compile(draft, lambda text: say(text.replace(str(draft), str(folder))))
        facts = {"made_from": fingerprint(kind), "python": chosen.version, **_facts_of_gpu(draft, kind)}
        (draft / MARKER).write_text(json.dumps(facts, indent=1) + "\n")
        _name_place(draft, folder)
        os.sync()
        _exchange(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _facts_of_gpu(draft: Path, kind: Kind) -> dict[str, object]:
    """The marker's facts about an environment for a GPU; none for CPUs."""
    if not kind.gpu:
        return {}
    packages = (packages for pattern in _LIBRARIES for packages in draft.glob(f"lib/python3.*/site-packages/{pattern}"))
    return {"gpu": kind.gpu, "libraries": sorted(str(library.relative_to(draft)) for library in packages)}


def _draft(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.draft")


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.draft-before")


def _tidy(folder: Path) -> None:
    """Remove what an interrupted installation left; an environment that it had put aside serves again."""
    if _aside(folder).exists() and not folder.exists():
        _aside(folder).rename(folder)
    for left in (_draft(folder), _aside(folder)):
        shutil.rmtree(left, ignore_errors=True)


def _replacement(folder: Path, kind: Kind) -> str:
    """The line about an environment that is to be replaced."""
    before = kind_of(folder)
    if not is_whole(folder):
        return f"{folder} is incomplete or was made from other requirements: it is made again"
    if before == kind:
        reason = f"lacks {', '.join(missing_libraries(folder))}: it is made again"
    else:
        reason = f"is for {before.name}: it is replaced by one for {kind.name} once that is complete"
    return f"{folder} {reason}; packages that were added to it, PyTorch among them, are removed with it"


def _name_place(draft: Path, folder: Path) -> None:
    """Name the final place of an environment in its programs, which name their interpreter by its path."""
    for file in (draft / "pyvenv.cfg", *(draft / "bin").iterdir()):
        if file.is_symlink() or not file.is_file():
            continue
        content = file.read_bytes()
        if str(draft).encode() in content and b"\0" not in content:
            file.write_bytes(content.replace(str(draft).encode(), str(folder).encode()))


def _exchange(draft: Path, folder: Path) -> None:
    """Put a complete environment in its place, in one step (Linux renameat2) where another one is there."""
    if not folder.exists():
        draft.rename(folder)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(draft), _AT_FDCWD, os.fsencode(folder), _RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(code, os.strerror(code), str(folder))
    aside = _aside(folder)
    folder.rename(aside)
    draft.rename(folder)
    aside.rename(draft)


def place(folder: Path) -> None:
    """Put the modules of `site/` next to an environment's packages, where each of its interpreters imports them."""
    for packages in folder.glob("lib/python3.*/site-packages"):
        for file in sorted(SITE.glob("*.p*"), reverse=True):  # modules that a .pth imports are copied before it
            draft = packages / f".{file.name}.{os.getpid()}"
            shutil.copyfile(file, draft)
            draft.replace(packages / file.name)


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
    return last_line(ran.stderr) if ran.returncode else ""


def _has_torch(folder: Path, kind: Kind) -> bool:
    """Whether the environment has PyTorch, and for a GPU one with CUDA."""
    version = next(folder.glob("lib/python3.*/site-packages/torch/version.py"), None)
    return version is not None and not (kind.gpu and re.search(r"(?m)^cuda\b.*= None$", version.read_text()))


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
    parser.add_argument("--torch", action="store_true", help="install PyTorch too")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--gpu", action="store_true", default=None, help="make it for an NVIDIA GPU")
    kinds.add_argument(
        "--cpu",
        "--no-gpu",
        action="store_false",
        dest="gpu",
        help="make it for CPUs; by default as it is, and a new one for CPUs",
    )
    parser.add_argument("--no-hashes", action="store_true", help="accept files other than PyPI's")
    arguments = parser.parse_args()
    try:
        done = make(
            arguments.folder.absolute(),
            lambda text: print(text, flush=True),  # noqa: T201
            arguments.python,
            arguments.torch,
            not arguments.no_hashes,
            arguments.gpu,
        )
    except (InstallError, OSError) as error:
        todo = f"; {error.todo}" if isinstance(error, InstallError) else ""
        print(f"{arguments.folder}: {error}{todo}", file=sys.stderr)  # noqa: T201
        return 4
    print(f"{arguments.folder}: {'made' if done else 'is current'}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
