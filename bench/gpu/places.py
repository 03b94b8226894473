"""The folder of `make gpu`, the card of the machine, and the two environments. Standard library only."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.gpu import cuda
from bench.gpu.steps import Refusal, StepError, command

__all__ = ["ROOT", "Place", "find_card"]

ROOT = Path(__file__).resolve().parents[2]
GPU_REQUIREMENTS = ROOT / "python_backends" / "requirements-gpu.txt"
TESTING = ("fsspec", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
"""Packages of the tests' plugins."""
BUNDLED = "bundled"
"""A file next to the models of a bundle."""
_QUERY = ("name", "driver_version", "memory.total", "compute_cap")


def find_card() -> dict[str, str]:
    """The first GPU by nvidia-smi.

    Raises:
        Refusal: there is none.
    """
    words = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise Refusal(
            "no NVIDIA GPU: nvidia-smi is not there, so nothing was measured; run this where the driver is installed"
        ) from None
    values = [value.strip() for value in done.stdout.strip().split(",")]
    if done.returncode or len(values) != len(_QUERY):
        reason = (done.stdout + done.stderr).strip().splitlines()
        raise Refusal(f"no NVIDIA GPU: nvidia-smi says {(reason or ['nothing'])[0]!r}, so nothing was measured")
    return dict(zip(("name", "driver", "memory", "compute"), values, strict=True))


@dataclass(frozen=True)
class Place:
    """A run's folder and sources.

    Args:
        folder: everything that the run writes.
        wheels: a folder of wheels to install from, without an index; None: from the index.
        rehearse: a rehearsal on the CPU.
    """

    folder: Path
    wheels: Path | None = None
    rehearse: bool = False

    @property
    def repository(self) -> Path:
        """The models."""
        return self.folder / ("small" if self.rehearse else "models") / "repository"

    @property
    def is_bundled(self) -> bool:
        """Whether the models came with a bundle, and are not built here."""
        return (self.repository.parent / BUNDLED).is_file()

    @property
    def client(self) -> Path:
        """The Python of tritonkit: that of `make setup` where it was run, else one with less."""
        full = ROOT / ".venv"
        return (full if (full / ".ready").is_file() else self.folder / "client") / "bin" / "python"

    @property
    def server(self) -> Path:
        """The server environment; a rehearsal takes that of `make setup`."""
        return ROOT / ".venv-server" if self.rehearse else self.folder / "server"

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables of every step."""
        offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "UV_OFFLINE": "1", "UV_NO_INDEX": "1"}
        path = os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        own = {"TRITONKIT_SERVER_VENV": str(self.server), "PYTHONPATH": path}
        return own | (offline | {"UV_FIND_LINKS": str(self.wheels)} if self.wheels else {})

    def run(self, limit: float, *words: object, **variables: str) -> None:
        """Run a program of a step."""
        command([str(word) for word in words], limit, ROOT, {**self.variables, **variables})

    def key(self, card: Mapping[str, str]) -> str:
        """A hash of what results depend on: the card, this bench, the backends' sources, the wheels."""
        whole = hashlib.sha256(repr((sorted(card.items()), sys.version_info[:2], self.rehearse)).encode())
        sources = [*(ROOT / "bench" / "gpu").rglob("*.py"), *(ROOT / "python_backends").glob("*.*")]
        native = (ROOT / "python_backends" / "native").rglob("*.[chp]*")
        for file in sorted([*sources, *(file for file in native if "__pycache__" not in file.parts)]):
            whole.update(file.name.encode() + (file.read_bytes() if file.is_file() else b""))
        for wheel in sorted(self.wheels.glob("*.whl")) if self.wheels else ():
            whole.update(f"{wheel.name} {wheel.stat().st_size}".encode())
        return whole.hexdigest()[:16]

    def environments(self, limit: float) -> None:
        """Make the environments that are not there."""
        self._make_client(limit)
        if self.rehearse:
            if not (self.server / "bin" / "python").is_file():
                raise StepError(f"{self.server} is not there; a rehearsal needs it: make setup")
            return
        words = [sys.executable, ROOT / "python_backends" / "environment.py", self.server]
        site = self.own_cuda(GPU_REQUIREMENTS.read_text())
        extra = {} if site is None else {"PIP_FIND_LINKS": f"{self.wheels} {self.folder / 'stand-ins'}"}
        self.run(limit, *words, "--gpu", *(["--no-hashes"] if site else []), **extra)
        if site is not None:
            print(f"CUDA libraries of {site}: {', '.join(cuda.link(site, self.server)) or 'linked before'}")
        torch = cuda.site_with(cuda.TORCH)
        if torch is not None:
            cuda.lend_torch(torch, self.server)
            cuda.lend_torch(torch, self.folder / "client")

    def _make_client(self, limit: float) -> None:
        """Make the client's environment; a file in it, written last, says with which packages."""
        own = self.folder / "client"
        packages = client_requirements(builds=not self.is_bundled)
        if not self.client.is_relative_to(own):
            return
        made = own / "packages.txt"
        if made.is_file() and made.read_text().splitlines() == packages:
            return
        self.run(limit, sys.executable, "-m", "venv", "--clear", own)
        pip = [self.client, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        self.run(limit, *pip, *packages)
        made.write_text("\n".join(packages) + "\n")

    def own_cuda(self, requirements: str) -> Path | None:
        """The packages with CUDA's libraries, if the wheels lack them; stand-ins for those wheels are written.

        Raises:
            StepError: neither the wheels nor this Python have the libraries.
        """
        if self.wheels is None:
            return None
        packages = cuda.lacking(requirements, self.wheels)
        if not packages:
            return None
        site = cuda.site_with(cuda.LIBRARY)
        if site is None:
            raise StepError(
                f"{self.wheels} lacks {', '.join(packages)}, and no package of this Python brings CUDA 13's libraries;"
                " add the wheels, or run this with the Python that has PyTorch for CUDA 13"
            )
        cuda.stand_ins(packages, self.folder / "stand-ins")
        return site

    def imports(self, name: str) -> bool:
        """Whether the client's Python has a package."""
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
        return subprocess.run([self.client, "-c", code], check=False).returncode == 0

    def torch_python(self) -> list[str]:
        """The option that names a Python with PyTorch for CUDA; none where there is none."""
        return ["--torch-python", sys.executable] if cuda.site_with(cuda.TORCH) and not self.rehearse else []


def client_requirements(builds: bool) -> list[str]:
    """The packages of the client's environment: tritonkit's, the tests', and those that build ONNX models."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *TESTING, *(project["optional-dependencies"]["onnx"] if builds else ())]
