"""A Python environment for each peer, made on first use."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import venv
from typing import TYPE_CHECKING

from tritonkit.errors import ServerNotFound

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["environment"]

_SAME = ("onnxruntime", "tokenizers", "pillow")
"""The engines have the same release on all sides, that of the server environment; except where a peer's own
requirements name it because it takes no such release."""
_MINUTES = 30


def environment(name: str, requirements: Path, home: Path, engine_python: Path) -> Path:
    """The folder with the programs of a peer's environment, `<home>/<name>/bin`.

    It is made again when the requirements change.

    Args:
        engine_python: the server environment's Python, whose versions are used.

    Raises:
        ServerNotFound: it cannot be installed here; pip's own words say why.
    """
    folder = home / name
    lines = requirements.read_text().splitlines()
    pins = [pin for pin in _pins(engine_python) if not any(line.startswith(pin.partition("==")[0]) for line in lines)]
    fingerprint = hashlib.sha256((requirements.read_text() + "\n".join(pins)).encode()).hexdigest()
    ready = folder / ".ready"
    if ready.is_file() and ready.read_text() == fingerprint:
        return folder / "bin"
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{name}: making its environment in {folder} ...", flush=True)
    _made(folder, engine_python)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    # PyTorch first and by its exact release: a resolver that is free to choose takes one with CUDA.
    first = [line for line in lines if line.startswith("torch==")]
    for arguments in ([first] if first else []) + [["-r", str(requirements), *pins]]:
        _install(name, [*pip, *arguments])
    ready.write_text(fingerprint)
    return folder / "bin"


def _made(folder: Path, python: Path) -> None:
    try:
        subprocess.run([str(python), "-m", "venv", str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        venv.create(folder, with_pip=True)


def _install(name: str, command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * _MINUTES)
    except subprocess.TimeoutExpired:
        raise ServerNotFound(name, found=f"pip took over {_MINUTES} minutes") from None
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise ServerNotFound(
            name,
            found="it cannot be installed here",
            todo="leave it out with --peers, or see what pip says",
            details="\n".join(line[:300] for line in errors[-3:]),
        )


def _pins(python: Path) -> list[str]:
    """`package==version` of the engines."""
    code = f"from importlib.metadata import version as v; print(*(f'{{n}}=={{v(n)}}' for n in {_SAME}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    if done.returncode != 0:
        raise ServerNotFound(str(python), found="it has no ONNX Runtime, tokenizers and Pillow", todo="make setup")
    return done.stdout.split()
