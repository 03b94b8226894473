"""CUDA libraries and PyTorch that a machine has already, for its new server environment. Standard library only.

An installed PyTorch brings the libraries that ONNX Runtime needs, 1.3 GB of them. Where the folder of wheels lacks
their packages, the environment gets wheels without content in their place, and links to those folders.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["lacking", "link", "site_with", "stand_ins"]

LIBRARY = "nvidia/*/lib/libcublasLt.so.13"
TORCH = "torch/lib/libtorch_cuda.so"
_PIN = re.compile(r"(?m)^(nvidia-[\w-]+)\s*(?:~=|==|>=)\s*([\w.]+)")
_OWN = {"nvidia-pytriton"}
"""NVIDIA's packages that are not CUDA's."""


def site_with(pattern: str, paths: Iterable[str] = sys.path) -> Path | None:
    """The first folder of packages that has such a file."""
    folders = [Path(path) for path in paths if path and Path(path).is_dir()]
    return next((folder for folder in folders if next(folder.glob(pattern), None)), None)


def lacking(requirements: str, wheels: Path) -> dict[str, str]:
    """CUDA's packages that requirements pin and a folder of wheels lacks, with a version that fits the pin."""
    present = {file.name.split("-")[0].lower() for file in wheels.glob("*.whl")}
    pins = {name: version for name, version in _PIN.findall(requirements) if name not in _OWN}
    return {name: version for name, version in pins.items() if name.replace("-", "_") not in present}


def stand_ins(packages: dict[str, str], folder: Path) -> None:
    """Write a wheel without content for each package."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, version in packages.items():
        stem = f"{name.replace('-', '_')}-{version}"
        about = f"{stem}.dist-info"
        files = {
            f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tritonkit\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{file},,\n" for file in [*files, f"{about}/RECORD"])
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            for file, text in (files | {f"{about}/RECORD": record}).items():
                wheel.writestr(file, text)


def link(site: Path, environment: Path) -> list[str]:
    """Link the folders of CUDA's libraries into an environment's packages; the names of those linked."""
    linked = []
    for packages in environment.glob("lib/python3.*/site-packages"):
        for folder in sorted((site / "nvidia").iterdir()):
            place = packages / "nvidia" / folder.name
            if (folder / "lib").is_dir() and not place.exists():
                place.parent.mkdir(exist_ok=True)
                place.unlink(missing_ok=True)
                place.symlink_to(folder)
                linked.append(folder.name)
    return linked


def lend_torch(site: Path, environment: Path) -> None:
    """Let an environment import the packages of a folder after its own, so that its Python models have PyTorch."""
    for packages in environment.glob("lib/python3.*/site-packages"):
        (packages / "tritonkit_gpu_torch.pth").write_text(f"{site}\n")
