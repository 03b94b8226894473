"""The kinds of server environments: for CPUs, and for an NVIDIA GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

BASE = HERE / "requirements-base.txt"
"""Requirements of every kind of environment."""

COMMON = HERE / "requirements-common.lock"
"""The packages that all kinds have, to which their locks refer."""


@dataclass(frozen=True)
class Kind:
    """A purpose of an environment.

    Args:
        gpu: its word in the marker; empty for CPUs.
        name: its name in messages.
        requirements: the versions that it allows.
        lock: one version of each package, with the hashes of its files on PyPI; `make lock` writes it and COMMON.
        torch: the same with PyTorch.
        size_gb: its size on the disk.
        download_gb: what is downloaded for it.
        torch_download: what is downloaded for PyTorch and the libraries that it brings.
        torch_room_gb: free disk space that it needs in addition.
    """

    gpu: str
    name: str
    requirements: Path
    lock: Path
    torch: Path
    size_gb: float
    download_gb: float
    torch_download: str
    torch_room_gb: float

    @property
    def room_gb(self) -> float:
        """Free disk space that an installation needs: the environment, and the wheels while they are unpacked."""
        return round(self.size_gb + self.download_gb + 0.8, 1)


# Sizes were measured, with the byte code that pip compiles.
CPU = Kind(
    "",
    "CPUs",
    HERE / "requirements.txt",
    HERE / "requirements.lock",
    HERE / "requirements-torch.txt",
    size_gb=0.8,
    download_gb=0.4,
    torch_download="0.2 GB, or 2.7 where pip finds no build for CPUs",
    torch_room_gb=1.0,
)
GPU = Kind(
    "cuda13",
    "an NVIDIA GPU (CUDA 13)",
    HERE / "requirements-gpu.txt",
    HERE / "requirements-gpu.lock",
    HERE / "requirements-gpu-torch.txt",
    size_gb=3.0,
    download_gb=1.7,  # CUDA's libraries and ONNX Runtime for it are 1.45 of these
    torch_download="1.5 GB",
    torch_room_gb=4.3,
)
