"""Compile what runs inside tritonserver: `python build.py --venv .venv-server`.

It makes the guard that tritonserver preloads (guard/, C), the backends onnxruntime and openvino (backend/, C++), and
the library in front of Triton's Python backend that answers for the shipped steps (steps/, C++). A compiled library in
prebuilt/, compressed in a wheel of tritonkit, is used if it was made from these sources and runs here. Otherwise only
Python's standard library and a compiler are needed: the machine's, or the PyPI package `ziglang`, which is installed
into a temporary folder and removed afterwards. `--out FOLDER --sanitize address,undefined` (or `thread`) makes
libraries with sanitizers, for the runs in docs/native-backends.md.
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import io
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
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

PACKED = "libraries.tar.xz"
"""The file in PREBUILT that has a wheel's libraries."""

OLDEST_GLIBC = (2, 35)
"""The glibc that the embedded server needs; libraries for other machines must not need a newer one."""

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
# With frames and lines for reports, and without fortified functions, which a sanitizer does not see.
SANITIZE = ("-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined", "-U_FORTIFY_SOURCE")
SANITIZERS = ("address,undefined", "thread")
LINK = ("-shared", "-s", "-pthread", "-Wl,-z,relro,-z,now", "-ldl")

# The oldest glibc for files that ziglang compiles; those of the machine's own compiler need the machine's.
_GLIBC = "2.31"
_ZIG = "ziglang>=0.13"


@dataclass(frozen=True)
class Language:
    """The machine's compilers for a language, best first, and their flags."""

    compilers: tuple[str, ...]
    zig: str
    flags: tuple[str, ...]
    # The server loads the C++ library next to others, so it brings its own hidden runtime. Zig does so by default.
    link: tuple[str, ...] = ()


C = Language(("cc", "gcc", "clang"), "cc", ("-std=c11", "-D_GNU_SOURCE"))
CPP = Language(
    ("c++", "g++", "clang++"),
    "c++",
    ("-std=c++17", "-ffp-contract=off"),
    # Dropping the unused parts of that runtime halves the files, and they need no newer glibc than the server.
    ("-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections"),
)


@dataclass(frozen=True)
class Library:
    """A file to make, and the patterns of its sources below this folder."""

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
    """Put a library into a folder, from PREBUILT or compiled; return what was done, in a few words.

    Nothing is done if a current one is there. The file appears in one step, and a note next to it identifies its
    sources.

    Args:
        name: a key of LIBRARIES.
        folder: the folder of the file.
        compiler: a command to use instead of looking for one; `ziglang` stands for the package.
        download: whether `ziglang` may be installed if this machine has no compiler.
        sanitize: one of SANITIZERS for the library to have; using it requires preloading GCC's runtime.

    Raises:
        BuildError: every compiler failed, or the folder cannot be written.
    """
    if is_current(name, folder, compiler, sanitize):
        return "is current"
    library = LIBRARIES[name]
    out = folder / library.file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (compiler or sanitize) and _take_ready_made(name, out):
            return f"taken from {PREBUILT}"
        with tempfile.TemporaryDirectory(prefix="tritonkit-native-") as scratch:
            made = _compile(library, Path(scratch), compiler, download, sanitize)
            _put(made, out, _fingerprint(library, compiler, sanitize))
    except OSError as error:
        raise BuildError(f"{out}: {error}; choose another place with --out") from error
    return "compiled"


def prebuild(folder: Path, download: bool = True) -> tuple[int, int]:
    """Compile all libraries for other machines of this kind; return the oldest glibc that they run with.

    A compiler links to the glibc of its machine. If a file then needs more than OLDEST_GLIBC, `ziglang` makes it,
    if it may be installed.

    Raises:
        BuildError: the errors of `build`.
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
    """The newest glibc version that a library needs, from the names of the versions in the file."""
    releases = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", file.read_bytes())
    return max(((int(major), int(minor)) for major, minor in releases), default=(0, 0))


def this_glibc() -> tuple[int, int]:
    """The version of this machine's glibc; (0, 0) if it has another C library."""
    try:
        version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1]
        major, minor = version.split(".")[:2]
        return int(major), int(minor)
    except (IndexError, OSError, ValueError):
        return 0, 0


def pack(folder: Path) -> None:
    """Compress a wheel's libraries into one file, which also takes space where the wheel is installed: they have much
    code in common."""
    import lzma

    # The filter for code of this machine's processor comes before the compression.
    code = [{"id": lzma.FILTER_X86}] if platform.machine() == "x86_64" else []
    filters = [*code, {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for library in sorted(folder.glob("*.so")):
            entry = tarfile.TarInfo(library.name)
            entry.size = library.stat().st_size
            archive.addfile(entry, io.BytesIO(library.read_bytes()))
            library.unlink()
    (folder / PACKED).write_bytes(lzma.compress(whole.getvalue(), filters=filters))


def _take_ready_made(name: str, out: Path) -> bool:
    """Put the library of PREBUILT in place, if it was made from these sources and runs here; else return False."""
    try:
        import lzma
    except ImportError:  # a Python that was compiled without liblzma
        return False
    library = LIBRARIES[name]
    with tempfile.TemporaryDirectory(prefix="tritonkit-native-") as scratch:
        folder = Path(scratch)
        packed = PREBUILT / PACKED
        try:
            if packed.is_file():
                with tarfile.open(packed, "r:xz") as archive, (folder / library.file).open("wb") as file:
                    shutil.copyfileobj(archive.extractfile(library.file), file)
                shutil.copyfile(_note(PREBUILT / library.file), _note(folder / library.file))
            else:
                folder = PREBUILT
        except (FileNotFoundError, KeyError, EOFError, tarfile.TarError, lzma.LZMAError):  # damaged is as good as none
            return False
        if not is_current(name, folder) or needed_glibc(folder / library.file) > this_glibc():
            return False
        _put(folder / library.file, out, _fingerprint(library, ""))
        return True


def _put(made: Path, out: Path, fingerprint: str) -> None:
    # The copy is made in the same folder, because a file cannot be renamed to another file system.
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
    """The file in `scratch` that the first working compiler made."""
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
    """Compile each source in a process of its own, as many concurrently as there are cores, and link them."""
    flags = [*COMPILE, *library.language.flags, "-I", str(HERE / "backend"), *_sanitizer(sanitize)]
    objects = {scratch / f"{place}.o": source for place, source in enumerate(_files(library.sources))}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(
            pool.map(
                lambda item: _run([*command, *flags, "-c", "-o", str(item[0]), str(item[1])], scratch), objects.items()
            )
        )
    out = scratch / library.file
    # A report needs the names that -s removes.
    linked = [flag for flag in LINK if not (sanitize and flag == "-s")]
    _run([*command, "-o", str(out), *map(str, objects), *linked, *link, *_sanitizer(sanitize)], scratch)
    return out


def _run(command: Sequence[str], scratch: Path) -> None:
    caches = {"ZIG_GLOBAL_CACHE_DIR": "global", "ZIG_LOCAL_CACHE_DIR": "local"}
    places = {name: str(scratch / folder) for name, folder in caches.items()}
    subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **places})


def _compilers(language: Language, compiler: str, download: bool) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Compiler commands, each with its flags for linking."""
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
            "no compiler on this machine could compile it, and the package ziglang cannot be installed:"
            f" {ran.stderr.strip()[-1000:]}\ninstall gcc and g++ with libc's headers, or let pip reach"
            " a package index"
        )
    return folder / "ziglang" / "zig"


def main() -> int:
    """Build what the arguments name; return 0, or 3 with the reasons on stderr."""
    parser = argparse.ArgumentParser(description="Compile what runs inside tritonserver.")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--venv", type=Path, help=f"the server's environment; the libraries go to {PLACE} in it")
    place.add_argument("--out", type=Path, help="the folder to write to")
    place.add_argument(
        "--prebuilt",
        action="store_true",
        help=f"write all libraries to {PREBUILT}, for images that are built here and for other machines",
    )
    parser.add_argument("--compiler", default="", help="the command of a compiler, or ziglang")
    parser.add_argument(
        "--no-download", action="store_true", help="do not install ziglang if this machine has no compiler"
    )
    parser.add_argument(
        "--sanitize", choices=SANITIZERS, default="", help="make libraries with these sanitizers; requires --out"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"libraries to make: {', '.join(LIBRARIES)}; all by default"
    )
    arguments = parser.parse_args()
    if arguments.venv is not None and not arguments.venv.is_dir():
        parser.error(f"there is no folder {arguments.venv}")
    if arguments.sanitize and arguments.out is None:
        parser.error("--sanitize makes libraries that no server should use; name their folder with --out")
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
