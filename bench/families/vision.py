"""torchvision in child processes alone: transformers would import it where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["HOME", "environment", "torchvision_says"]

SCRIPT = Path(__file__).with_name("torchvision_answers.py")
HOME = Path(__file__).resolve().parent.parent.parent / ".tritonkit" / "families"
"""The folder of environments that are made on first use."""


def environment() -> dict[str, str]:
    """The variables of a process that finds the torchvision of this PyTorch, which is installed on first use."""
    import torch

    minor = int(torch.__version__.split(".")[1])
    version = f"torchvision==0.{minor + 15}.*"
    folder = HOME / f"torchvision-0.{minor + 15}"
    if not (folder / "sitecustomize.py").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), version]
        subprocess.run(pip, check=True)
    shutil.copy(SCRIPT, folder / "sitecustomize.py")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


def torchvision_says(weights: Path, answers: Path, pictures: Sequence[Path]) -> None:
    """Write the weights, or the probabilities of the pictures' classes where the weights are there."""
    command = [sys.executable, "-P", SCRIPT, weights, answers, *pictures]
    subprocess.run(command, check=True, env=os.environ | environment())
