"""Compile the guard that tritonserver preloads: `python build.py --venv .venv-server`.

It needs Python's standard library, and a C compiler: the machine's, else the PyPI package `ziglang`, which
is installed into a temporary folder and thrown away.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "guard"
PLACE = Path("lib") / "tritonkit" / "guard.so"
"""Where it lies in the server's environment."""

FLAGS = (
    "-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-fvisibility=hidden",
    "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror",
    "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong", "-Wl,-z,relro,-z,now", "-pthread",
)  # fmt: skip
LIBRARIES = ("-ldl",)

# The oldest glibc that a file of ziglang's runs with; one of the machine's own compiler runs here.
_GLIBC = "2.31"
_ZIG = "ziglang>=0.13"


class BuildError(Exception):
    """The guard cannot be compiled; the text says why and what to do."""


def build(out: Path, compiler: str = "") -> bool:
    """Compile the guard to `out` unless it is there and current; gives whether anything was done.

    The file appears in one step. Beside it lies a note of what it was made from.

    Args:
        out: the file to write.
        compiler: a command to use instead of looking for one; `ziglang` takes the package.

    Raises:
        BuildError: no compiler did it, or the folder cannot be written.
    """
    if is_current(out, compiler):
        return False
    note = _note(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tritonkit-guard-") as scratch:
            made = _compile(Path(scratch), compiler)
            # Beside its place, because a file cannot be renamed to another file system.
            ready = out.with_name(f".{out.name}.{os.getpid()}")
            shutil.copyfile(made, ready)
            ready.chmod(0o755)
            note.unlink(missing_ok=True)
            ready.replace(out)
            note.write_text(_fingerprint(compiler))
    except OSError as error:
        raise BuildError(f"{out}: {error}; choose another place with --out") from error
    return True


def is_current(out: Path, compiler: str = "") -> bool:
    """Whether `out` was made from these sources, with these flags, for this kind of machine."""
    note = _note(out)
    return out.is_file() and note.is_file() and note.read_text() == _fingerprint(compiler)


def _note(out: Path) -> Path:
    return out.with_name(out.name + ".made-from")


def _fingerprint(compiler: str) -> str:
    whole = hashlib.sha256(" ".join([compiler, platform.machine(), *FLAGS, *LIBRARIES]).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        whole.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return whole.hexdigest()


def _compile(scratch: Path, compiler: str) -> Path:
    """The compiled file in `scratch`, by the first compiler that can."""
    out = scratch / "guard.so"
    sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
    failures = []
    for command in _compilers(scratch, compiler):
        ran = subprocess.run(
            [*command, *FLAGS, "-o", str(out), *sources, *LIBRARIES],
            capture_output=True, text=True, check=False, env=_environment(scratch),
        )  # fmt: skip
        if ran.returncode == 0:
            return out
        failures.append(f"{shlex.join(command)}: {ran.stderr.strip()[-2000:]}")
    raise BuildError(
        "\n".join(failures) or "there is no C compiler; install gcc, or name one with --compiler"
    )


def _compilers(scratch: Path, compiler: str) -> Iterator[list[str]]:
    if compiler and compiler != "ziglang":
        yield shlex.split(compiler)
        return
    if not compiler:
        yield from ([found] for found in map(shutil.which, ("cc", "gcc", "clang")) if found)
    yield _ziglang(scratch / "ziglang")


def _ziglang(folder: Path) -> list[str]:
    """Zig's C compiler from PyPI, with its own headers and libraries."""
    ran = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-input", "--no-deps", "--target", str(folder), _ZIG],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode != 0:
        raise BuildError(
            "no C compiler on this machine could compile the guard, and the package ziglang cannot be"
            f" installed: {ran.stderr.strip()[-1000:]}\ninstall gcc with libc's headers, or let pip"
            " reach a package index"
        )
    target = f"{platform.machine()}-linux-gnu.{_GLIBC}"
    return [str(folder / "ziglang" / "zig"), "cc", "-target", target]


def _environment(scratch: Path) -> dict[str, str]:
    caches = {"ZIG_GLOBAL_CACHE_DIR": "global", "ZIG_LOCAL_CACHE_DIR": "local"}
    return {**os.environ, **{name: str(scratch / folder) for name, folder in caches.items()}}


def main() -> int:
    """Build it as the arguments say; 0, or 3 with the reason on stderr."""
    parser = argparse.ArgumentParser(description="Compile the guard that tritonserver preloads.")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--venv", type=Path, help=f"the server's environment: {PLACE} in it")
    place.add_argument("--out", type=Path, help="the file to write")
    parser.add_argument("--compiler", default="", help="a C compiler's command, or: ziglang")
    arguments = parser.parse_args()
    if arguments.venv is not None and not arguments.venv.is_dir():
        parser.error(f"there is no folder {arguments.venv}")
    out = arguments.out or arguments.venv / PLACE
    try:
        done = build(out, arguments.compiler)
    except BuildError as error:
        print(f"guard: not compiled: {error}", file=sys.stderr)  # noqa: T201
        return 3
    print(f"guard: {out} {'compiled' if done else 'is current'}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
