"""This machine's GPU for a build: as the judge of variants, with the ONNX Runtime of the server environment, and as the
card that is to have room for them."""

from __future__ import annotations

from pathlib import Path

from tritonkit.errors import ServerNotFound
from tritonkit.repository.optimize.gpu import CudaEnvironment, described_gpu
from tritonkit.repository.optimize.gpu_judging import GpuJudge
from tritonkit.repository.render.gpu_memory import Card
from tritonkit.repository.render.gpu_network import runs_on_gpu
from tritonkit.serve.core.cuda import cuda_libraries, why_no_provider
from tritonkit.serve.core.devices import find_driver
from tritonkit.serve.install import find_server

__all__ = ["find_card", "find_judge"]


def find_judge(root: Path) -> GpuJudge | str:
    """The judge for a project, or the reason why variants are judged on the CPU."""
    gpu = described_gpu()
    if gpu is None:
        return "the CUDA driver shows no GPU on this machine"
    try:
        python = find_server(root).python_bin
    except ServerNotFound as error:
        return error.found
    if python is None:
        return "tritonserver on PATH is not tritonkit's own"
    if reason := why_no_provider(python.parent):
        return f"{reason} (tritonkit server install --gpu)"
    libraries = tuple(map(str, cuda_libraries(python.parent)))
    return GpuJudge(CudaEnvironment(python / "python", libraries, gpu), runs_on_gpu)


def find_card() -> Card | None:
    """The GPU with the most memory; None on a machine without one."""
    cards = [Card(device.name, device.memory_bytes) for device in find_driver().devices]
    return max(cards, key=lambda card: card.memory_bytes, default=None)
