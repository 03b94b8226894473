"""The Python of the stubs of this machine's server, for builds that make packages for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, get_args

from tritonkit.errors import ServerError, UsageError
from tritonkit.releases import NVIDIA_IMAGE_VARIABLE, python_of, release_of_image, release_of_server
from tritonkit.serve.install import find_server

if TYPE_CHECKING:
    from pathlib import Path

    from tritonkit.repository.environments import Environments, Interpreter

__all__ = ["VARIABLE", "environments_of", "numpy_of", "stub_python"]

VARIABLE = "TRITONKIT_STUB_PYTHON"
"""The environment variable that names the Python of a server elsewhere, X.Y; the image's builder sets it."""


def environments_of(root: Path, target: str) -> Environments:
    """The environments of a project, for the server of a target."""
    from tritonkit.repository.environments import Environments

    return Environments.of_project(root, lambda: stub_python(root, target))


def stub_python(root: Path, target: str) -> Interpreter:
    """The Python that runs the models of a repository for a target.

    For NVIDIA's image it is that of the release that TRITONKIT_NVIDIA_BASE names. Else it is the one that
    TRITONKIT_STUB_PYTHON names, else that of this machine's server, else the one that runs this.
    """
    from tritonkit.repository.environments.interpreter import NUMPY, Interpreter
    from tritonkit.repository.modelspec.python import PythonVersion

    if target == "nvidia":
        return Interpreter(python_of(release_of_image(os.environ.get(NVIDIA_IMAGE_VARIABLE, ""))))
    if named := os.environ.get(VARIABLE):
        if named not in get_args(PythonVersion):
            raise UsageError(VARIABLE, found=named, wanted=f"one of {', '.join(get_args(PythonVersion))}")
        return Interpreter.without_server().with_version(named)
    try:
        server = find_server(root)
    except ServerError:
        return Interpreter.without_server()
    if server.native or server.python_bin is None:
        return Interpreter(python_of(release_of_server(server.version)))
    return Interpreter(server.python, numpy_of(server.python_bin.parent) or NUMPY, server.python_bin / "python")


def numpy_of(environment: Path) -> str:
    """The version of numpy in a server environment; empty if there is none."""
    info = next(environment.glob("lib/python3.*/site-packages/numpy-*.dist-info"), None)
    return "" if info is None else info.name.removeprefix("numpy-").removesuffix(".dist-info")
