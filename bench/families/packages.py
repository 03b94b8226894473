"""Packages that bring OpenCV or PyTorch's extensions: they are installed for child processes alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.families.recipes import Item

__all__ = ["HOME", "answers_of", "environment", "installed"]

HOME = Path(__file__).resolve().parent.parent.parent / ".tritonkit" / "families"
"""The folder of environments that are made on first use."""


def installed(name: str, requirements: Sequence[str]) -> Path:
    """The folder of this name with these packages, which are installed on first use."""
    folder = HOME / name
    ready = folder / ".ready"
    if not ready.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder)]
        subprocess.run([*pip, *requirements], check=True)
        ready.touch()
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The variables of a process that finds the packages of a folder."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


def answers_of(script: Path, packages: Path, folder: Path, items: Sequence[Item]) -> list[Any]:
    """The answers of a program to pictures, as JSON.

    Args:
        script: takes the pictures' files.
        packages: the folder with those that it needs.
        folder: where the files are written.
        items: the pictures.
    """
    files = [folder / f"picture-{number:02}" for number in range(len(items))]
    for file, item in zip(files, items, strict=True):
        file.write_bytes(item["image"])
    command = [sys.executable, "-P", str(script), *map(str, files)]
    variables = os.environ | environment(packages)
    made = subprocess.run(command, check=True, env=variables, capture_output=True, text=True)
    answers: list[Any] = json.loads(made.stdout)
    return answers
