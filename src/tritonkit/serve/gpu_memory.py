"""GPU memory that models need: what is certain before they are loaded, and an estimate of the rest.

A start refuses models by what is certain, and warns by the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tritonkit.repository.render.gpu_memory import CONTEXT_BYTES, ModelMemory, memory_of
from tritonkit.serve.manifests import batch_bytes, network_bytes, warm_up_of
from tritonkit.serve.shm import MIB

if TYPE_CHECKING:
    from tritonkit.serve.core.devices import Device
    from tritonkit.serve.repository import ServedModel

__all__ = ["SERVER_BYTES", "DeviceMemory", "mib", "needs_of"]

SERVER_BYTES = 600 * MIB
"""Memory of a GPU that tritonserver takes before any model, by the estimate: 584 MiB on an H100 (2.51)."""


def needs_of(model: ServedModel, instances: int) -> ModelMemory:
    """The needs of a model with a number of instances on a GPU, all its versions together."""
    versions = max(1, len(model.versions))
    runs = round(sum(warm_up_of(model, version)[0] for version in model.versions))
    return memory_of(
        instances,
        network_bytes(model),
        versions * batch_bytes(model),
        runs,
        graphs=model.config.optimization.cuda.graphs,
        processes=versions if model.runs_pytorch else 0,
    )


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
        """Bytes that the server and its models take at least: for the server, CUDA itself."""
        return CONTEXT_BYTES + sum(needs.certain for needs in self.needs.values())

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
            f"{name} {mib(needs.likely if estimated else needs.certain)} ({needs.words(mib, estimated=estimated)})"
            for name, needs in self.needs.items()
        )
        return ", ".join((f"the server {mib(SERVER_BYTES if estimated else CONTEXT_BYTES)}", *models))
