"""The one door through which heavy libraries enter: a missing one names the pip extra that brings it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from tritonkit.errors import BuildError

__all__ = ["need"]


def need(module: str, extra: str) -> Any:
    """Import a heavy library where it is used."""
    # torch's threads (libgomp's) spin while they wait for each other unless told otherwise before the
    # first import: on cores that others use too, a training step was seen to take 40 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise BuildError(
            f"import {module}",
            found=f"the package {error.name} is not installed",
            todo=f"pip install 'tritonkit[{extra}]', or run `make setup` in a clone",
        ) from error
