"""The one door for what the cache needs beside the client: a missing package names the pip extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tritonkit.errors import UsageError

__all__ = ["need"]


def need(module: str) -> Any:
    """Import a library where it is used.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            "Cache(...)",
            found=f"the package {error.name} is not installed",
            todo="pip install 'tritonkit[cache]'",
        ) from error
