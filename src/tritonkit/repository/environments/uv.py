"""Runs uv, which finds and installs packages; the index is the one of uv's or pip's configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tritonkit.errors import BuildError

__all__ = ["find_uv", "index_settings", "run_uv", "without_secrets"]

_LARGE = re.compile(r" *Downloading (?P<name>\S+) \((?P<size>[\d.]+ ?[KMG]i?B)\)")
_SECRET = re.compile(r"(?P<scheme>\w+://)[^/\s]+@")
_PIP_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
"""Settings of pip -> the variables by which uv takes the same."""
_IGNORED = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX", "UV_COMPILE_BYTECODE", "UV_TARGET", "UV_PYTHON")


def find_uv(where: str) -> str:
    """The program uv: of the package in this Python, else on PATH.

    Raises:
        BuildError: there is none.
    """
    own = Path(sys.executable).parent / "uv"
    found = str(own) if own.is_file() else shutil.which("uv")
    if found is None:
        raise BuildError(
            where,
            found="the model has requirements of its own, and uv is not installed",
            wanted="uv, which makes environments",
            todo="pip install 'tritonkit[environments]'",
        )
    return found


def index_settings() -> tuple[dict[str, str], list[str]]:
    """Variables and options that give uv the package index of pip's configuration, where uv has none of its own.

    Addresses are handed on in the environment of the process, so that no password is in a command line or file.
    """
    if any(name in os.environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX")):
        return {}, []
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    lines = (
        re.fullmatch(r"(?:global|install|:env:)\.(?P<name>[a-z-]+)='(?P<value>.*)'", n) for n in listed.splitlines()
    )
    # pip lists what counts more after what counts less: files, then variables.
    given = {line["name"]: line["value"].replace("\\n", " ").split() for line in lines if line}
    settings = {
        variable: ("," if name == "find-links" else " ").join(given[name])
        for name, variable in _PIP_NAMES.items()
        if given.get(name) and variable not in os.environ
    }
    is_off = given.get("no-index", ["0"])[-1:] not in (["0"], ["false"], ["no"], ["off"])
    options = ["--no-index"] if is_off else []
    if "UV_INDEX" in settings and "UV_INDEX_STRATEGY" not in os.environ:
        options += ["--index-strategy", "unsafe-best-match"]  # pip takes the best version of all its indexes
    return settings, options


def run_uv(command: Sequence[str], folder: Path, say: Callable[[str], None]) -> tuple[int, str]:
    """Run uv in a folder; its exit code and output, without secrets. Each large download is said."""
    env = {name: value for name, value in os.environ.items() if name not in _IGNORED}
    for name in [name for name, value in env.items() if name.startswith("UV_") and not value]:
        del env[name]  # compose has no other word for "none"
    settings, options = index_settings()
    lines = []
    with subprocess.Popen(
        [*command, *options],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env | settings | {"NO_COLOR": "1"},
    ) as process:
        assert process.stdout is not None  # noqa: S101 - requested above
        for line in process.stdout:
            lines.append(line.rstrip())
            if large := _LARGE.match(line):
                say(f"downloading {large['name']}, {large['size']}")
    return process.returncode, without_secrets("\n".join(lines[-60:]))


def without_secrets(text: str) -> str:
    """The text without users and passwords in addresses."""
    return _SECRET.sub(r"\g<scheme>...@", text)
