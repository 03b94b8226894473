"""GPU memory that models need: what is certain before they are loaded, and an estimate of the rest.

A start refuses models by what is certain, and warns by the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tritonkit.serve.manifests import batch_bytes, network_bytes, warm_up_of
from tritonkit.serve.shm import MIB

if TYPE_CHECKING:
    from tritonkit.serve.core.devices import Device
    from tritonkit.serve.repository import ServedModel

__all__ = ["SERVER_BYTES", "STUB_BYTES", "DeviceMemory", "ModelMemory", "mib", "needs_of"]

SERVER_BYTES = 600 * MIB
"""Memory of a GPU that tritonserver takes before any model: 584 MiB on an H100 (2.51)."""

STUB_BYTES = 620 * MIB
"""Memory that a Python process with PyTorch takes before its network, on an H100."""

_PYTORCH = "pytorch"


@dataclass(frozen=True)
class ModelMemory:
    """Bytes that a model takes on one GPU.

    Args:
        weights: its files, once for each session of ONNX Runtime: each instance with CUDA graphs has one of its own,
            and all others of a GPU share one. So `python_backends/native/backend/onnxruntime/sessions.cpp` does it.
        tensors: inputs and outputs of the largest batch, which an instance with graphs holds from its start.
        runs: the largest batch of each instance, by the memory that one item took on the CPU of the machine that
            built it. A GPU computes by other kernels, with workspaces of their own, so this is an estimate.
        processes: the processes of a model that PyTorch runs, by figures of an H100.
    """

    weights: int
    tensors: int = 0
    runs: int = 0
    processes: int = 0

    @property
    def certain(self) -> int:
        """Bytes without which it cannot be loaded."""
        return self.weights + self.tensors

    @property
    def likely(self) -> int:
        """Bytes that it takes by the estimate."""
        return self.certain + self.runs + self.processes

    def words(self, *, estimated: bool) -> str:
        """The shares, in MiB."""
        shares = {"weights": self.weights, "inputs and outputs of its graphs": self.tensors}
        if estimated:
            shares |= {"a largest batch, by the CPU's figures": self.runs, "processes": self.processes}
        return ", ".join(f"{name} {mib(size)}" for name, size in shares.items() if size)


def needs_of(model: ServedModel, instances: int) -> ModelMemory:
    """The needs of a model with a number of instances on a GPU, all its versions together."""
    versions = max(1, len(model.versions))
    runs = round(sum(warm_up_of(model, version)[0] for version in model.versions))
    if model.backend == _PYTORCH:
        processes = STUB_BYTES * instances * versions
        return ModelMemory(instances * network_bytes(model), 0, instances * runs, processes)
    graphs = model.config.optimization.cuda.graphs
    tensors = instances * versions * batch_bytes(model) if graphs else 0
    return ModelMemory((instances if graphs else 1) * network_bytes(model), tensors, instances * runs)


def mib(size: int) -> str:
    """A size in MiB, and never 0 MiB for some bytes."""
    return f"{size / MIB:.0f} MiB" if size >= MIB else f"{size / MIB:.1g} MiB"


@dataclass
class DeviceMemory:
    """The memory of a GPU at a start, and the models that share it."""

    number: int
    device: Device
    needs: dict[str, ModelMemory] = field(default_factory=dict)

    def has_room(self, needs: ModelMemory) -> bool:
        """Whether another model surely does not exceed what is free; True where the driver does not say."""
        free = self.device.free_bytes
        return free is None or self.certain + needs.certain <= free

    @property
    def certain(self) -> int:
        """Bytes that the server and its models take at least."""
        return SERVER_BYTES + sum(needs.certain for needs in self.needs.values())

    @property
    def note(self) -> str:
        """A warning if the models may not fit, by the estimate; empty if they do."""
        likely, free = SERVER_BYTES + sum(needs.likely for needs in self.needs.values()), self.device.free_bytes
        if free is None or likely <= free:
            return ""
        return (
            f"{self.words()}, and its models may take {mib(likely)} ({self.shares(estimated=True)}): an estimate, so"
            " they are loaded. Fewer instances, a smaller max_batch_size or fewer models (--model) take less"
        )

    def words(self) -> str:
        """The GPU, what is free of it, and who has the rest."""
        holders = ", ".join(f"{pid} ({mib(size)})" for pid, size in self.device.holders)
        held = f"; processes hold it: {holders}" if holders else ""
        free, all_bytes = mib(self.device.free_bytes or 0), mib(self.device.memory_bytes)
        return f"GPU {self.number} ({self.device.name}) has {free} of {all_bytes} free{held}"

    def shares(self, *, estimated: bool = False) -> str:
        """The share of the server and of each model."""
        models = (
            f"{name} {mib(needs.likely if estimated else needs.certain)} ({needs.words(estimated=estimated)})"
            for name, needs in self.needs.items()
        )
        return ", ".join((f"the server {mib(SERVER_BYTES)}", *models))
