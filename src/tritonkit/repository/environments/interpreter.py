"""The Python of a server, for which packages are made."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tritonkit.repository.modelspec.python import PythonVersion

__all__ = ["IMAGE_PYTHON", "NUMPY", "Interpreter"]

IMAGE_PYTHON = "3.11"
"""The Python of tritonkit's images (deploy/docker/Dockerfile)."""
NUMPY = "1.26.4"
"""The numpy of server environments (python_backends/requirements-common.lock)."""

_SERVERS = ("3.11", "3.12")


@dataclass(frozen=True)
class Interpreter:
    """The Python that a server's stubs run.

    Args:
        version: its version, X.Y.
        numpy: the version of the numpy that each stub has loaded.
        program: the interpreter on this machine, or None if it is elsewhere.
    """

    version: str = IMAGE_PYTHON
    numpy: str = NUMPY
    program: Path | None = None

    @classmethod
    def without_server(cls) -> Interpreter:
        """The Python of a server elsewhere: this process's, as in the image, if a server may have it."""
        here = ".".join(map(str, sys.version_info[:2]))
        return cls(here, program=Path(sys.executable)) if here in _SERVERS else cls()

    @property
    def machine(self) -> str:
        """The kind of processor, for which this machine makes packages."""
        return platform.machine()

    @property
    def platform(self) -> str:
        """The platform as uv names it: the server needs glibc 2.35."""
        return f"{self.machine}-manylinux_2_35"

    def with_version(self, version: str) -> Interpreter:
        """The same for a version that a spec names; empty keeps it."""
        if version in ("", self.version):
            return self
        assert version in get_args(PythonVersion)  # noqa: S101  the spec was checked
        return Interpreter(version, self.numpy)
