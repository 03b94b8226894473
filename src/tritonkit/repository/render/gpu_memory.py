"""The GPU memory that a network's instances take, as far as it can be counted before it is served.

A build and a start count by the same function, `memory_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.serving import Instances, Optimization, Serving
from tritonkit.repository.modelspec.units import format_bytes
from tritonkit.repository.render.gpu_network import GpuNetwork, read_network
from tritonkit.repository.render.values import ModelPlan

__all__ = ["PYTORCH_BYTES", "Card", "ModelMemory", "check_card", "check_limit", "memory_note", "memory_of"]

PYTORCH_BYTES = 620 << 20
"""GPU memory of a process with PyTorch before its network, on an H100."""
_LIMIT = "gpu_mem_limit"
"""The bound on the memory of one instance, in bytes: an option of the CUDA provider, and a parameter of NVIDIA's
backend."""


@dataclass(frozen=True)
class Card:
    """A GPU of the building machine, the one with the most memory."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class ModelMemory:
    """Bytes that a model takes on one GPU.

    Args:
        weights: its files, once for each session of ONNX Runtime: each instance with CUDA graphs has one of its own,
            and all others of a GPU share one. So `python_backends/native/backend/onnxruntime/sessions.cpp` does it.
        tensors: inputs and outputs of the largest batch, which an instance with graphs holds from its start. The graphs
            of smaller batches use the same place.
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

    def words(self, form: Callable[[int], str], *, estimated: bool) -> str:
        """The shares, each size in a form."""
        shares = {"weights": self.weights, "inputs and outputs of its graphs": self.tensors}
        if estimated:
            shares |= {"a largest batch, by the CPU's figures": self.runs, "processes": self.processes}
        return ", ".join(f"{name} {form(size)}" for name, size in shares.items() if size)


def memory_of(
    instances: int, weights: int, batch_bytes: int, run_bytes: int, *, graphs: bool, processes: int = 0
) -> ModelMemory:
    """The memory of a model with a number of instances on a GPU.

    Args:
        weights: size of its files.
        batch_bytes: inputs and outputs of a largest batch.
        run_bytes: memory of a run of a largest batch.
        graphs: whether it has CUDA graphs.
        processes: processes of one instance, if PyTorch runs it.
    """
    if processes:
        return ModelMemory(instances * weights, 0, instances * run_bytes, instances * processes * PYTORCH_BYTES)
    sessions = instances if graphs else min(instances, 1)
    return ModelMemory(sessions * weights, instances * batch_bytes if graphs else 0, instances * run_bytes)


def memory_note(network: GpuNetwork, artifact: Artifact, plan: GpuPlan) -> str:
    """A note with the memory on each GPU. One item's memory was measured on the CPU, where the build ran it."""
    if not network.weight_bytes or not plan.instances:
        return ""
    needs = _memory(network, artifact, plan)
    instances = f"{plan.instances} instance{'' if plan.instances == 1 else 's'}"
    return (
        f"GPU memory: about {format_bytes(needs.likely)} on each GPU, for {instances}"
        f" ({needs.words(format_bytes, estimated=True)}); workspaces of convolutions and CUDA itself (0.6 GiB on an"
        " H100) come on top"
    )


@dataclass(frozen=True)
class GpuPlan:
    """The instances of a network on each GPU, its largest batch, and whether it has CUDA graphs."""

    instances: int
    max_batch_size: int
    graphs: bool

    @classmethod
    def of(cls, groups: Sequence[Instances], max_batch_size: int, optimization: Optimization) -> GpuPlan:
        """The plan by the settings of the model."""
        count = sum(group.count or 1 for group in groups if group.kind == "gpu")
        return cls(count, max_batch_size, optimization.cuda is not None and optimization.cuda.graphs)


def _memory(network: GpuNetwork, artifact: Artifact, plan: GpuPlan) -> ModelMemory:
    largest = max(1, plan.max_batch_size)
    item = artifact.start.memory_bytes if artifact.start else 0
    torch = artifact.form.startswith("torch")
    return memory_of(
        plan.instances,
        network.weight_bytes,
        largest * network.item_bytes,
        largest * item,
        graphs=plan.graphs,
        processes=int(torch),
    )


def check_limit(serving: Serving, optimization: Optimization, network: GpuNetwork, where: str) -> None:
    """RenderError if the weights exceed the memory that the spec allows one instance."""
    given = {f"{where}.parameters.{_LIMIT}": serving.parameters.get(_LIMIT, "")}
    given |= {
        f"{where}.optimization.gpu_execution_accelerator": one.parameters.get(_LIMIT, "")
        for one in optimization.gpu_execution_accelerator
    }
    for field, limit in given.items():
        if limit.isdecimal() and 0 < int(limit) < network.weight_bytes:
            raise RenderError(
                field,
                found=f"{_LIMIT} {format_bytes(int(limit))}, and the weights take {format_bytes(network.weight_bytes)}",
                wanted="room for the weights and for a batch",
                todo="raise it, or leave it out",
            )


def check_card(spec: Spec, artifact: Artifact, plans: Sequence[ModelPlan], card: Card | None) -> None:
    """RenderError for a network that has surely no room on a card, even if nothing else is there.

    Only what its instances hold from their start is counted: the weights of each session, and places for inputs and
    outputs where there are graphs. Runs take more, CUDA too.
    """
    if card is None:
        return
    plan = next(plan for plan in plans if plan.name == spec.network_name)
    network = read_network(spec, artifact)
    # A group may name its GPUs, so the largest alone is certain to be on one.
    groups = [GpuPlan.of([group], plan.max_batch_size, plan.optimization) for group in plan.instances]
    gpu = max(groups, key=lambda one: one.instances, default=GpuPlan(0, 0, graphs=False))
    needs = _memory(network, artifact, gpu)
    if needs.certain <= card.memory_bytes:
        return
    instances = f"{gpu.instances} instance{'' if gpu.instances == 1 else 's'}"
    raise RenderError(
        f"{spec.file} serving",
        found=f"{plan.name} takes {format_bytes(needs.certain)} of a GPU at least, for {instances}"
        f" ({needs.words(format_bytes, estimated=False)}), and the largest one here, {card.name}, has"
        f" {format_bytes(card.memory_bytes)}",
        wanted="a network that this machine's GPU can hold",
        todo="choose a smaller variant, fewer instances or a smaller max_batch_size; to build for another machine, hide"
        " the GPU of this one: CUDA_VISIBLE_DEVICES= tritonkit build",
    )
