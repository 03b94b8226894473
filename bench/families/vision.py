"""torchvision in child processes alone: transformers would import it where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.families import packages

__all__ = ["environment", "torchvision_says"]

SCRIPT = Path(__file__).with_name("torchvision_answers.py")


def environment() -> dict[str, str]:
    """The variables of a process that finds the torchvision of this PyTorch, which is installed on first use."""
    import torch

    minor = int(torch.__version__.split(".")[1])
    version = f"torchvision==0.{minor + 15}.*"
    folder = packages.installed(f"torchvision-0.{minor + 15}", [version])
    shutil.copy(SCRIPT, folder / "sitecustomize.py")
    return packages.environment(folder)


def torchvision_says(weights: Path, answers: Path, pictures: Sequence[Path]) -> None:
    """Write the weights, or the probabilities of the pictures' classes where the weights are there."""
    command = [sys.executable, "-P", SCRIPT, weights, answers, *pictures]
    subprocess.run(command, check=True, env=os.environ | environment())
