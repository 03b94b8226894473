"""Libraries that Triton's Python stub needs on this machine: the C library, and the interpreter's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import ServerNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GLIBC", "check_glibc", "find_libpython", "need_libpython"]

GLIBC = (2, 35)
"""The glibc that the server's binaries were linked against (nvidia-pytriton 0.7.0, manylinux_2_35)."""

_STANDARD = tuple(
    Path(folder)
    for folder in (
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
        "/usr/local/lib",
    )
)


def find_libpython(version: str, first: Iterable[Path] = (), cache: str | None = None) -> Path | None:
    """The shared library `libpythonX.Y.so.1.0`, or None.

    Args:
        version: Python's version, X.Y.
        first: folders to look in before the system's: the interpreter's own library fits it best.
        cache: the output of `ldconfig -p`; None runs the command.
    """
    name = f"libpython{version}.so.1.0"
    loader = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    for folder in (*first, *loader):
        if (folder / name).is_file():
            return folder / name
    listed = re.search(rf"{re.escape(name)} .*=> (\S+)", _loader_cache() if cache is None else cache)
    if listed:
        return Path(listed[1])
    return next((folder / name for folder in _STANDARD if (folder / name).is_file()), None)


def need_libpython(version: str, first: Iterable[Path]) -> Path:
    """`find_libpython`, or ServerNotFound with the Debian package that has it."""
    library = find_libpython(version, first)
    if library is None:
        raise ServerNotFound(
            f"libpython{version}.so.1.0",
            found="this machine has no such library, and Triton's Python stub is linked to it",
            wanted=f"the shared library of Python {version}",
            todo=f"apt-get install libpython{version} (Debian and Ubuntu), or make the server's"
            " environment with a Python that was configured with --enable-shared",
        )
    return library


def check_glibc(version: str | None = None) -> str:
    """The C library's version, `X.Y`; ServerNotFound if it is older than the server needs."""
    release = version or (os.confstr("CS_GNU_LIBC_VERSION") or "unknown").removeprefix("glibc ")
    numbers = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if numbers < GLIBC:
        raise ServerNotFound(
            "the C library",
            found=f"glibc {release}",
            wanted="glibc 2.35 or newer",
            todo="use Debian 12, Ubuntu 22.04 or newer, or serve with NVIDIA's container image",
        )
    return release


def _loader_cache() -> str:
    """Libraries known to the dynamic loader; empty on systems without ldconfig, such as Alpine."""
    ldconfig = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if ldconfig is None:
        return ""
    return subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False).stdout
