"""The door for packages that only some users of the client want."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tritonkit.errors import UsageError

__all__ = ["need"]


def need(module: str, package: str) -> Any:
    """Import a module where it is used.

    Args:
        module: what to import.
        package: what brings it, as pip takes it: a package, or an extra of this one.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"import {module}",
            found=f"the package {error.name} is not installed",
            todo=f"pip install '{package}'",
        ) from error
