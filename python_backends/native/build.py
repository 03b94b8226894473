"""Compile what runs inside tritonserver: `python build.py --venv .venv-server`.

The guard that it preloads (guard/, C), the backends onnxruntime and openvino (backend/, C++), and what answers
for the shipped steps before Triton's Python backend does (steps/, C++). What lies compiled in prebuilt/ is taken
where it is of these sources and runs here, as in a wheel of tritonkit. Else needed are Python's standard library
and a compiler: the machine's, or the PyPI package `ziglang`, which is installed into a temporary folder and
thrown away. `--out FOLDER --sanitize address,undefined` (or `thread`) makes libraries that watch themselves, for the
runs of docs/native-backends.md.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import os
import platform
import re
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

PREBUILT = HERE / "prebuilt" / platform.machine()
"""The folder of libraries that were compiled elsewhere; a clone has none unless --prebuilt made it."""

OLDEST_GLIBC = (2, 35)
"""The embedded server's own need: what is compiled to be taken elsewhere shall need no newer one."""

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
COMPILE = (
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    *WARNINGS,
    "-D_FORTIFY_SOURCE=2",
    "-fstack-protector-strong",
)
# Frames and lines for a report; no fortified functions, which a sanitizer does not see.
SANITIZE = ("-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined", "-U_FORTIFY_SOURCE")
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
    ("c++", "g++", "clang++"),
    "c++",
    ("-std=c++17", "-ffp-contract=off"),
    # Without what nothing uses of that runtime the files have half the size, and need no glibc newer than the server.
    ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections"),
)


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
            f"libtriton_{name}.so",
            CPP,
            ("backend/*.cpp", f"backend/{name}/*.cpp"),
            ("backend/*.h", f"backend/{name}/*.h"),
        )
        for name in ("onnxruntime", "openvino")
    },
    "python": Library(
        "libtriton_python.so",
        CPP,
        (*(f"backend/{name}.cpp" for name in ("config", "error", "json", "tensor")), "steps/*.cpp"),
        ("backend/*.h", "steps/*.h"),
    ),
}


class BuildError(Exception):
    """A library cannot be compiled; the text says why and what to do."""


def build(name: str, folder: Path, compiler: str = "", download: bool = True, sanitize: str = "") -> str:
    """Bring a library into a folder: one of PREBUILT, else compiled; gives what was done, in a few words.

    Nothing is done where it is there and current. The file appears in one step. Beside it lies a note of what
    it was made from.

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
        return "is current"
    library = LIBRARIES[name]
    out = folder / library.file
    ready_made = PREBUILT / library.file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        chosen = compiler or sanitize
        if not chosen and is_current(name, PREBUILT) and needed_glibc(ready_made) <= this_glibc():
            _put(ready_made, out, _fingerprint(library, ""))
            return f"taken from {PREBUILT}"
        with tempfile.TemporaryDirectory(prefix="tritonkit-native-") as scratch:
            made = _compile(library, Path(scratch), compiler, download, sanitize)
            _put(made, out, _fingerprint(library, compiler, sanitize))
    except OSError as error:
        raise BuildError(f"{out}: {error}; choose another place with --out") from error
    return "compiled"


def prebuild(folder: Path, download: bool = True) -> tuple[int, int]:
    """Compile all libraries to be taken by other machines of this kind; gives the oldest glibc they run with.

    A compiler binds to the glibc of its machine: where that makes a file need more than OLDEST_GLIBC,
    `ziglang` makes it, if it may be installed.

    Raises:
        BuildError: as `build`.
    """
    needed = [OLDEST_GLIBC]
    for name, library in LIBRARIES.items():
        out = folder / library.file
        build(name, folder, download=download)
        if needed_glibc(out) > OLDEST_GLIBC and download:
            build(name, folder, "ziglang")
            _note(out).write_text(_fingerprint(library, ""))
        needed.append(needed_glibc(out))
    return max(needed)


def needed_glibc(file: Path) -> tuple[int, int]:
    """The newest glibc whose symbols a library needs: their versions are names in the file."""
    releases = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", file.read_bytes())
    return max(((int(major), int(minor)) for major, minor in releases), default=(0, 0))


def this_glibc() -> tuple[int, int]:
    """The version of this machine's glibc; (0, 0) where it has another C library."""
    try:
        version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1]
        major, minor = version.split(".")[:2]
        return int(major), int(minor)
    except (IndexError, OSError, ValueError):
        return 0, 0


def _put(made: Path, out: Path, fingerprint: str) -> None:
    # Beside its place, because a file cannot be renamed to another file system.
    ready = out.with_name(f".{out.name}.{os.getpid()}")
    shutil.copyfile(made, ready)
    ready.chmod(0o755)
    _note(out).unlink(missing_ok=True)
    ready.replace(out)
    _note(out).write_text(fingerprint)


def is_current(name: str, folder: Path, compiler: str = "", sanitize: str = "") -> bool:
    """Whether a library was made from these sources, with these flags, for this kind of machine."""
    library = LIBRARIES[name]
    out = folder / library.file
    note = _note(out)
    return out.is_file() and note.is_file() and note.read_text() == _fingerprint(library, compiler, sanitize)


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
    raise BuildError("\n".join(failures) or "there is no compiler; install gcc and g++, or name one with --compiler")


def _compile_with(
    command: Sequence[str], link: Sequence[str], library: Library, scratch: Path, sanitize: str = ""
) -> Path:
    """Each source by a process of its own, as many at a time as there are cores."""
    flags = [*COMPILE, *library.language.flags, "-I", str(HERE / "backend"), *_sanitizer(sanitize)]
    objects = {scratch / f"{place}.o": source for place, source in enumerate(_files(library.sources))}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(
            pool.map(
                lambda item: _run([*command, *flags, "-c", "-o", str(item[0]), str(item[1])], scratch), objects.items()
            )
        )
    out = scratch / library.file
    # A report needs the names that -s takes out.
    linked = [flag for flag in LINK if not (sanitize and flag == "-s")]
    _run([*command, "-o", str(out), *map(str, objects), *linked, *link, *_sanitizer(sanitize)], scratch)
    return out


def _run(command: Sequence[str], scratch: Path) -> None:
    caches = {"ZIG_GLOBAL_CACHE_DIR": "global", "ZIG_LOCAL_CACHE_DIR": "local"}
    places = {name: str(scratch / folder) for name, folder in caches.items()}
    subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **places})


def _compilers(language: Language, compiler: str, download: bool) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Commands, with what each is told to link."""
    if compiler and compiler != "ziglang":
        yield shlex.split(compiler), language.link
        return
    if not compiler:
        programs = filter(None, map(shutil.which, language.compilers))
        yield from (([path], language.link) for path in programs)
    if download:
        target = f"{platform.machine()}-linux-gnu.{_GLIBC}"
        yield [str(_ziglang()), language.zig, "-target", target], ()


@cache
def _ziglang() -> Path:
    """Zig's compiler from PyPI, with its own headers and libraries; removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="tritonkit-ziglang-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-input",
            "--no-deps",
            "--target",
            str(folder),
            _ZIG,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
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
    place.add_argument(
        "--prebuilt",
        action="store_true",
        help=f"all of them to {PREBUILT}, for images that are built here and other machines",
    )
    parser.add_argument("--compiler", default="", help="a compiler's command, or: ziglang")
    parser.add_argument("--no-download", action="store_true", help="without a compiler on this machine, leave it")
    parser.add_argument(
        "--sanitize", choices=SANITIZERS, default="", help="libraries for a sanitizer's run; with --out"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(LIBRARIES)}; all by default")
    arguments = parser.parse_args()
    if arguments.venv is not None and not arguments.venv.is_dir():
        parser.error(f"there is no folder {arguments.venv}")
    if arguments.sanitize and arguments.out is None:
        parser.error("--sanitize makes libraries that no server should use: say --out FOLDER")
    if unknown := set(arguments.names) - set(LIBRARIES):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    if arguments.prebuilt:
        return _prebuilt(not arguments.no_download)
    folder = arguments.out or arguments.venv / PLACE
    failed = False
    for name in arguments.names or LIBRARIES:
        try:
            done = build(name, folder, arguments.compiler, not arguments.no_download, arguments.sanitize)
        except BuildError as error:
            failed = True
            print(f"{name}: not compiled: {error}", file=sys.stderr)  # noqa: T201
        else:
            file = folder / LIBRARIES[name].file
            print(f"{name}: {file} {done}")  # noqa: T201
    return 3 if failed else 0


def _prebuilt(download: bool) -> int:
    try:
        oldest = prebuild(PREBUILT, download)
    except (BuildError, OSError) as error:
        print(f"not compiled: {error}", file=sys.stderr)  # noqa: T201
        return 3
    print(f"{PREBUILT}: for glibc {'.'.join(map(str, oldest))} and newer")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
