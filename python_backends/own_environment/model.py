"""Runs a model's own Python, tritonkit_own_model.py, with the packages that it has for itself.

They lie in site-packages/ next to this file, and come before those of the server in this model's process alone. The
build puts this file there.
"""

from __future__ import annotations

import json
import platform
import site
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def _check(facts: dict[str, str]) -> None:
    """Compiled packages fit one Python, one kind of processor and one ABI of numpy."""
    here = {
        "python": ".".join(map(str, sys.version_info[:2])),
        "machine": platform.machine(),
        "numpy": np.__version__.partition(".")[0],
    }
    made = {name: facts[name] for name in here} | {"numpy": facts["numpy"].partition(".")[0]}
    if made != here:
        shown = [", ".join(f"{name} {value}" for name, value in values.items()) for values in (made, here)]
        raise RuntimeError(
            f"{HERE}: its packages were made for {shown[0]}; this server has {shown[1]}."
            " Name the server's Python in model.yaml (python.version), or NVIDIA's image in TRITONKIT_NVIDIA_BASE, and"
            " build again"
        )


def _use(packages: Path) -> None:
    """Put the packages first on the path, as if they were installed: with what their .pth files add."""
    before = list(sys.path)
    site.addsitedir(str(packages))
    sys.path[:] = [*(folder for folder in sys.path if folder not in before), *before]


_check(json.loads((HERE / "environment.json").read_text(encoding="utf-8")))
_use(HERE / "site-packages")

from tritonkit_own_model import TritonPythonModel  # noqa: E402

__all__ = ["TritonPythonModel"]
