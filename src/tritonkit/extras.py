"""The one place where libraries of extras are imported; a missing or broken one is a clear error."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module, metadata
from typing import Any

from tritonkit.errors import BuildError, TritonkitError, UsageError
from tritonkit.limits import advice, low
from tritonkit.resources import clone
from tritonkit.text import first_line

__all__ = ["need", "need_package"]


def need(module: str, extra: str) -> Any:
    """Import a heavy library where it is used.

    BuildError if it is not installed, with the pip extra that brings it, or if its import fails.
    """
    # torch's threads (libgomp's) spin while they wait for each other unless this is set before the
    # first import. On cores shared with other processes, a training step then took 40 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # ONNX Runtime's wheels, from 1.29 on, tell Microsoft which models are loaded.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    targets = {
        "build": "setup",
        "optimize": "optimize",
        "llm": "optimize",
        "modelopt": "optimize",
        "tensorrt": "optimize",
    }
    make = f"make {targets[extra]}, or: " if clone() is not None and extra in targets else ""
    return _imported(module, f"tritonkit[{extra}]", BuildError, make)


def need_package(module: str, requirement: str) -> Any:
    """Import a library that only some users of the client need; UsageError, with the pip command, if that fails."""
    return _imported(module, requirement, UsageError)


def _imported(module: str, requirement: str, kind: type[TritonkitError], make: str = "") -> Any:
    try:
        return import_module(module)
    except MemoryError:
        raise
    except Exception as error:  # an incompatible library may raise any exception
        package = module.partition(".")[0]
        if not isinstance(error, ModuleNotFoundError) or error.name != package:
            raise _broken(module, requirement, kind, error) from error
        raise kind(
            f"import {module}",
            found=f"the package {package} is not installed",
            todo=f"{make}pip install '{requirement}'",
        ) from error


def _broken(module: str, requirement: str, kind: type[TritonkitError], error: Exception) -> TritonkitError:
    """The error of a package that is installed and cannot be imported, for lack of a library for example."""
    package = module.partition(".")[0]
    name = metadata.packages_distributions().get(package, [package])[0]
    with contextlib.suppress(metadata.PackageNotFoundError):  # on the path, installed by no pip
        name = f"{name}=={metadata.version(name)}"
    limits = f"{advice(low(), 'this command')}; or " if low() else ""
    return kind(
        f"import {module}",
        found=f"{package} is installed and broken: {type(error).__name__}: {first_line(error)}",
        wanted="a package that can be imported",
        todo=f"{limits}reinstall it: pip install --force-reinstall --no-deps '{name}';"
        f" its dependencies come with pip install '{requirement}'",
    )
