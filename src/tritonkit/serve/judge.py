"""This machine's GPU for a build: as the judge of variants, with the ONNX Runtime of the server environment, and as the
card that is to have room for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tritonkit.errors import ServerNotFound
from tritonkit.repository.optimize.gpu import CudaEnvironment
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.render.gpu_memory import Card
from tritonkit.repository.render.gpu_network import runs_on_gpu
from tritonkit.serve.core.cuda import cuda_libraries, why_no_provider
from tritonkit.serve.core.devices import find_driver
from tritonkit.serve.install import find_server

if TYPE_CHECKING:
    from tritonkit.serve.core.devices import Driver

__all__ = ["BuildGpu", "find_build_gpu"]


@dataclass(frozen=True)
class BuildGpu:
    """This machine's GPU for a build.

    Args:
        judge: the judge of variants, or the reason why they are judged on the CPU.
        card: the GPU with the most memory; None on a machine without one.
    """

    judge: GpuJudge | str
    card: Card | None


def find_build_gpu(root: Path) -> BuildGpu:
    """The GPU for a build of a project. The driver is asked once, and for a bounded time."""
    driver = find_driver()
    cards = [Card(device.name, device.memory_bytes) for device in driver.devices]
    return BuildGpu(_judge(root, driver), max(cards, key=lambda card: card.memory_bytes, default=None))


def _judge(root: Path, driver: Driver) -> GpuJudge | str:
    if not driver.devices:
        return driver.wrong
    try:
        python = find_server(root).python_bin
    except ServerNotFound as error:
        return error.found
    if python is None:
        return "tritonserver on PATH is not tritonkit's own"
    if reason := why_no_provider(python.parent):
        return f"{reason} (tritonkit server install --gpu)"
    libraries = tuple(map(str, cuda_libraries(python.parent)))
    described = f"{driver.devices[0].name}, driver {driver.version or 'unknown'}"
    return GpuJudge(CudaEnvironment(python / "python", libraries, described), runs_on_gpu)
