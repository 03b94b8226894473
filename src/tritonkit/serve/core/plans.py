"""TensorRT plans and this machine: a plan is for one version of TensorRT and one kind of GPU.

A build writes both next to the plan. TensorRT's own refusal of another plan names tags of its format, and no remedy.
Standard library only: the images have a copy of this module.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PLAN", "BuiltFor", "built_for", "find_tensorrt"]

PLAN = "model.plan"
_RECORD = "plan.json"
_ASK_S = 120.0
_MAJORS = range(15, 7, -1)
_BACKENDS = Path("/opt/tritonserver/backends")
_LINKED = re.compile(rb"\0libnvinfer\.so\.(\d+)\0")
_AMPERE = (8, 0)


@dataclass(frozen=True)
class BuiltFor:
    """The TensorRT and the GPU that a plan is for.

    Args:
        version: TensorRT's.
        capability: the GPU's compute capability, such as 9.0.
        gpu: its name.
        hardware: `optimize.tensorrt.hardware_compatibility`, by which other GPUs may take it.
        newer: whether newer versions of the same major one may take it (`version_compatible`).
    """

    version: str
    capability: str
    gpu: str
    hardware: str = "none"
    newer: bool = False

    def misfit(self, tensorrt: str, devices: Iterable[tuple[str, str]]) -> str:
        """The reason why the plan cannot be served here; empty if there is none that is known.

        Args:
            tensorrt: the version here; empty if it is unknown.
            devices: the name and the compute capability of each GPU that is to run it.
        """
        if tensorrt and not self._takes_version(_numbers(tensorrt)):
            return f"its plan was built by TensorRT {self.version}, and here is {tensorrt}"
        for name, capability in devices:
            if not self._takes_device(_numbers(capability)):
                made = f"compute capability {self.capability} ({self.gpu})"
                return f"its plan was built for {made}, and {name} has {capability}"
        return ""

    def _takes_version(self, here: tuple[int, ...]) -> bool:
        own = _numbers(self.version)[:3]
        return here[:3] == own or (self.newer and here[:1] == own[:1] and here[:3] > own)

    def _takes_device(self, here: tuple[int, ...]) -> bool:
        return here == _numbers(self.capability) or (self.hardware == "ampere_plus" and here >= _AMPERE)


def built_for(version_folder: Path) -> BuiltFor | None:
    """The TensorRT and the GPU that the plan in a version folder is for; None if nothing says so, or without a plan."""
    try:
        facts = json.loads((version_folder / _RECORD).read_text())
        settings = facts.get("tensorrt", {})
        version, capability, gpu = (str(facts[name]) for name in ("tensorrt_version", "compute_capability", "gpu"))
        hardware, newer = settings.get("hardware_compatibility", "none"), settings.get("version_compatible", False)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    plan = BuiltFor(version, capability, gpu, hardware, bool(newer))
    return plan if (version_folder / PLAN).is_file() else None


def find_tensorrt(backends: Path = _BACKENDS) -> str:
    """The version of this machine's TensorRT, as its library says it; empty if there is none.

    It is the one that Triton's tensorrt backend is linked to, and without that backend the newest. A process of its own
    asks, because the library brings CUDA along: this file, which therefore imports nothing of its package before.

    Args:
        backends: Triton's folder of backends.
    """
    from .probe import run_probe

    try:
        ran = run_probe([sys.executable, "-IS", __file__, str(backends)], _ASK_S)
    except OSError:
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def _majors(backends: Path) -> list[int]:
    """The major versions of TensorRT that a server may open: the one whose name is in its backend, else any."""
    try:
        content = (backends / "tensorrt" / "libtriton_tensorrt.so").read_bytes()
    except OSError:
        content = b""
    return [int(major) for major in _LINKED.findall(content)][:1] or list(_MAJORS)


def _ask(backends: Path) -> str:
    """The version that libnvinfer gives as a number: 100500 for 10.5.0, and 8601 for 8.6.1."""
    library: Any = None
    for major in _majors(backends):
        try:
            library = ctypes.CDLL(f"libnvinfer.so.{major}")
            break
        except OSError:
            continue
    if library is None:
        return ""
    number = library.getInferLibVersion()
    major, rest = divmod(number, 10_000 if number >= 100_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


if __name__ == "__main__":
    sys.stdout.write(_ask(Path(sys.argv[1])))
