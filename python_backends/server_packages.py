"""Make an empty environment and fill it with packages, by uv if it is there, else by pip; standard library only."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from server_python import InstallError, Interpreter

# pip and uv announce a download of a megabyte or more in this form.
_LARGE = re.compile(r" *Downloading (?P<name>\w+(?:-[A-Za-z]\w*)*)[^ ]* \((?P<size>[\d.]+ ?Mi?B)\)")

Say = Callable[[str], object]
"""A function that takes a line about progress."""


def create(folder: Path, chosen: Interpreter, say: Say) -> str:
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
        raise InstallError(last_line(ran.stdout + ran.stderr), "use another Python with --python")
    return "pip"


def install(folder: Path, requirements: Path, say: Say) -> None:
    """Install with uv if it exists, and otherwise or after a failure with pip; from wheels only."""
    python = str(folder / "bin" / "python")
    words = ["--only-binary", ":all:", "-r", str(requirements)]
    words += ["--require-hashes"] if requirements.suffix == ".lock" else []
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *words, "--progress-bar", "off"]
    uv = shutil.which("uv")
    if uv is not None:
        code, text = _run([uv, "pip", "install", "--python", python, "--no-progress", *words], say)
        if code == 0:
            return
        say(f"uv cannot install them; trying pip: {last_line(text)}")
    code, text = _run(pip, say)
    if code != 0:
        raise _not_installed(requirements, text)


def _not_installed(requirements: Path, text: str) -> InstallError:
    """The error of an installation, which distinguishes an index with other files than PyPI's from an unreachable
    one."""
    if os.strerror(errno.ENOSPC) in text:
        return InstallError(
            f"{requirements.name} cannot be installed: the disk is full",
            "free disk space, also where pip unpacks its downloads (TMPDIR), and try again",
        )
    other = re.search(r"(?m)^ *(?P<name>[\w.-]+==\S+) .*:\n *Expected sha256", text)
    if other is not None:
        return InstallError(
            f"the package index has another file of {other['name']} than {requirements.name} names: its hash differs",
            "use PyPI or a mirror of it (PIP_INDEX_URL), or --no-hashes if the index has its own builds",
        )
    return InstallError(
        f"{requirements.name} cannot be installed: {last_line(text)}",
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


def last_line(text: str) -> str:
    """The line of a program's output that says what went wrong, at most 300 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "×"))]
    return (errors or lines or ["no output"])[-1][:300]
