"""Compile what runs inside tritonserver: `python build.py --venv .venv-server`.

The guard that it preloads (guard/, C), and the backends onnxruntime and openvino (backend/, C++). Needed are
Python's standard library and a compiler: the machine's, else the PyPI package `ziglang`, which is installed
into a temporary folder and thrown away. `--out FOLDER --sanitize address,undefined` (or `thread`) makes libraries
that watch themselves, for docs/native-backends.md's runs.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACE = Path("lib") / "tritonkit"
"""The folder of the libraries in the server's environment."""

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
COMPILE = (
    "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", *WARNINGS,
    "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong",
)  # fmt: skip
# Frames and lines for a report; no fortified functions, which a sanitizer does not see.
SANITIZE = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-sanitize-recover=undefined",
    "-U_FORTIFY_SOURCE",
)
SANITIZERS = ("address,undefined", "thread")
LINK = ("-shared", "-s", "-pthread", "-Wl,-z,relro,-z,now", "-ldl")

# The oldest glibc that a file of ziglang's runs with; one of the machine's own compiler runs here.
_GLIBC = "2.31"
_ZIG = "ziglang>=0.13"


@dataclass(frozen=True)
class Language:
    """How the sources of a language are compiled: the machine's compilers, best first, and what they are told."""

    compilers: tuple[str, ...]
    zig: str
    flags: tuple[str, ...]
    # A C++ library that the server loads beside others brings its own runtime, hidden. Zig does so by itself.
    link: tuple[str, ...] = ()


C = Language(("cc", "gcc", "clang"), "cc", ("-std=c11", "-D_GNU_SOURCE"))
CPP = Language(
    ("c++", "g++", "clang++"), "c++", ("-std=c++17",),
    ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL"),
)  # fmt: skip


@dataclass(frozen=True)
class Library:
    """A file to make, and from what: patterns of sources below this folder."""

    file: str
    language: Language
    sources: tuple[str, ...]
    headers: tuple[str, ...]


LIBRARIES = {
    "guard": Library("guard.so", C, ("guard/*.c",), ("guard/*.h",)),
    **{
        name: Library(
            f"libtriton_{name}.so", CPP, ("backend/*.cpp", f"backend/{name}/*.cpp"),
            ("backend/*.h", f"backend/{name}/*.h"),
        )
        for name in ("onnxruntime", "openvino")
    },
}  # fmt: skip


class BuildError(Exception):
    """A library cannot be compiled; the text says why and what to do."""


def build(
    name: str, folder: Path, compiler: str = "", download: bool = True, sanitize: str = ""
) -> bool:
    """Compile a library into a folder unless it is there and current; gives whether anything was done.

    The file appears in one step. Beside it lies a note of what it was made from.

    Args:
        name: a key of LIBRARIES.
        folder: where the file goes.
        compiler: a command to use instead of looking for one; `ziglang` takes the package.
        download: whether `ziglang` may be installed where this machine has no compiler.
        sanitize: what the library shall watch of itself, of SANITIZERS; GCC's runtime must be preloaded to use it.

    Raises:
        BuildError: no compiler did it, or the folder cannot be written.
    """
    if is_current(name, folder, compiler, sanitize):
        return False
    library = LIBRARIES[name]
    out = folder / library.file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tritonkit-native-") as scratch:
            made = _compile(library, Path(scratch), compiler, download, sanitize)
            # Beside its place, because a file cannot be renamed to another file system.
            ready = out.with_name(f".{out.name}.{os.getpid()}")
            shutil.copyfile(made, ready)
            ready.chmod(0o755)
            _note(out).unlink(missing_ok=True)
            ready.replace(out)
            _note(out).write_text(_fingerprint(library, compiler, sanitize))
    except OSError as error:
        raise BuildError(f"{out}: {error}; choose another place with --out") from error
    return True


def is_current(name: str, folder: Path, compiler: str = "", sanitize: str = "") -> bool:
    """Whether a library was made from these sources, with these flags, for this kind of machine."""
    library = LIBRARIES[name]
    out = folder / library.file
    note = _note(out)
    return (
        out.is_file()
        and note.is_file()
        and note.read_text() == _fingerprint(library, compiler, sanitize)
    )


def _note(out: Path) -> Path:
    return out.with_name(out.name + ".made-from")


def _files(patterns: Iterable[str]) -> list[Path]:
    return sorted(file for pattern in patterns for file in HERE.glob(pattern))


def _fingerprint(library: Library, compiler: str, sanitize: str = "") -> str:
    language = library.language
    words = [compiler, platform.machine(), *COMPILE, *language.flags, *LINK, *language.link]
    words += _sanitizer(sanitize)
    whole = hashlib.sha256(" ".join(words).encode())
    for source in _files((*library.sources, *library.headers)):
        name = source.relative_to(HERE).as_posix()
        whole.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    return whole.hexdigest()


def _sanitizer(names: str) -> list[str]:
    return [*SANITIZE, f"-fsanitize={names}"] if names else []


def _compile(library: Library, scratch: Path, compiler: str, download: bool, sanitize: str) -> Path:
    """The compiled file in `scratch`, by the first compiler that can."""
    failures = []
    for command, own in _compilers(library.language, compiler, download):
        try:
            return _compile_with(command, own, library, scratch, sanitize)
        except subprocess.CalledProcessError as failed:
            failures.append(f"{shlex.join(command)}: {failed.stderr.strip()[-2000:]}")
    raise BuildError(
        "\n".join(failures)
        or "there is no compiler; install gcc and g++, or name one with --compiler"
    )


def _compile_with(
    command: Sequence[str], link: Sequence[str], library: Library, scratch: Path, sanitize: str = ""
) -> Path:
    """Each source by a process of its own, as many at a time as there are cores."""
    flags = [*COMPILE, *library.language.flags, "-I", str(HERE / "backend"), *_sanitizer(sanitize)]
    objects = {
        scratch / f"{place}.o": source for place, source in enumerate(_files(library.sources))
    }
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(
            pool.map(
                lambda item: _run(
                    [*command, *flags, "-c", "-o", str(item[0]), str(item[1])], scratch
                ),
                objects.items(),
            )
        )
    out = scratch / library.file
    # A report needs the names that -s takes out.
    linked = [flag for flag in LINK if not (sanitize and flag == "-s")]
    _run(
        [*command, "-o", str(out), *map(str, objects), *linked, *link, *_sanitizer(sanitize)],
        scratch,
    )
    return out


def _run(command: Sequence[str], scratch: Path) -> None:
    caches = {"ZIG_GLOBAL_CACHE_DIR": "global", "ZIG_LOCAL_CACHE_DIR": "local"}
    places = {name: str(scratch / folder) for name, folder in caches.items()}
    subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **places}
    )


def _compilers(
    language: Language, compiler: str, download: bool
) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Commands, with what each is told to link."""
    if compiler and compiler != "ziglang":
        yield shlex.split(compiler), language.link
        return
    if not compiler:
        found = filter(None, map(shutil.which, language.compilers))
        yield from (([path], language.link) for path in found)
    if download:
        target = f"{platform.machine()}-linux-gnu.{_GLIBC}"
        yield [str(_ziglang()), language.zig, "-target", target], ()


@cache
def _ziglang() -> Path:
    """Zig's compiler from PyPI, with its own headers and libraries; removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="tritonkit-ziglang-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ran = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-input", "--no-deps", "--target", str(folder), _ZIG],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode != 0:
        raise BuildError(
            "no compiler on this machine could do it, and the package ziglang cannot be installed:"
            f" {ran.stderr.strip()[-1000:]}\ninstall gcc and g++ with libc's headers, or let pip reach"
            " a package index"
        )
    return folder / "ziglang" / "zig"


def main() -> int:
    """Build as the arguments say; 0, or 3 with the reasons on stderr."""
    parser = argparse.ArgumentParser(description="Compile what runs inside tritonserver.")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--venv", type=Path, help=f"the server's environment: {PLACE} in it")
    place.add_argument("--out", type=Path, help="the folder to write to")
    parser.add_argument("--compiler", default="", help="a compiler's command, or: ziglang")
    parser.add_argument(
        "--no-download", action="store_true", help="without a compiler on this machine, leave it"
    )
    parser.add_argument(
        "--sanitize",
        choices=SANITIZERS,
        default="",
        help="libraries for a sanitizer's run; with --out",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(LIBRARIES)}; all by default"
    )
    arguments = parser.parse_args()
    if arguments.venv is not None and not arguments.venv.is_dir():
        parser.error(f"there is no folder {arguments.venv}")
    if arguments.sanitize and arguments.out is None:
        parser.error("--sanitize makes libraries that no server should use: say --out FOLDER")
    if unknown := set(arguments.names) - set(LIBRARIES):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    folder = arguments.out or arguments.venv / PLACE
    failed = False
    for name in arguments.names or LIBRARIES:
        try:
            done = build(
                name, folder, arguments.compiler, not arguments.no_download, arguments.sanitize
            )
        except BuildError as error:
            failed = True
            print(f"{name}: not compiled: {error}", file=sys.stderr)  # noqa: T201
        else:
            file = folder / LIBRARIES[name].file
            print(f"{name}: {file} {'compiled' if done else 'is current'}")  # noqa: T201
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
