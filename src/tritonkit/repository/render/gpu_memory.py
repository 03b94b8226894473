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

__all__ = [
    "CONTEXT_BYTES",
    "PYTORCH_BYTES",
    "Card",
    "ModelMemory",
    "check_card",
    "check_limit",
    "memory_note",
    "memory_of",
]

CONTEXT_BYTES = 64 << 20
"""A floor for the GPU memory of a process that has opened CUDA: its context grows with the card, to 0.5 GiB on an
H100."""
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
        weights: its files: once for each process of PyTorch, and once for all instances in ONNX Runtime, which share a
            session without CUDA graphs.
        contexts: CUDA's own, of PyTorch's processes.
        copies: the files again, for the session of each further instance with CUDA graphs. An instance gives its own up
            where no graph can be captured. So `python_backends/native/backend/onnxruntime/engine.cpp` does it.
        tensors: inputs and outputs of the largest batch, which an instance with graphs holds from its start. The graphs
            of smaller batches use the same place.
        runs: the largest batch of each instance, by the memory that one item took on the CPU of the machine that
            built it. A GPU computes by other kernels, with workspaces of their own, so this is an estimate.
        processes: the rest of PyTorch's processes, by figures of an H100.
    """

    weights: int
    contexts: int = 0
    copies: int = 0
    tensors: int = 0
    runs: int = 0
    processes: int = 0

    @property
    def certain(self) -> int:
        """Bytes without which it cannot be loaded."""
        return self.weights + self.contexts

    @property
    def likely(self) -> int:
        """Bytes that it takes by the estimate."""
        return self.certain + self.copies + self.tensors + self.runs + self.processes

    def words(self, form: Callable[[int], str], *, estimated: bool) -> str:
        """The shares, each size in a form."""
        shares = {"weights": self.weights, "CUDA itself": self.contexts}
        if estimated:
            shares = {
                "weights": self.weights + self.copies,
                "inputs and outputs of its graphs": self.tensors,
                "a largest batch, by the CPU's figures": self.runs,
                "processes": self.contexts + self.processes,
            }
        return ", ".join(f"{name} {form(size)}" for name, size in shares.items() if size)


def memory_of(
    instances: int, weights: int, batch_bytes: int, run_bytes: int, *, graphs: bool, processes: int = 0
) -> ModelMemory:
    """The memory of a model with a number of instances on a GPU.

    Args:
        weights: size of its files.
        batch_bytes: inputs and outputs of a largest batch.
        run_bytes: memory of a run of a largest batch.
        graphs: whether it is to have CUDA graphs.
        processes: processes of one instance, if PyTorch runs it.
    """
    stubs, sessions = instances * processes, min(instances, 1)
    further = instances - sessions if graphs and not processes else 0
    return ModelMemory(
        weights=(instances if processes else sessions) * weights,
        contexts=stubs * CONTEXT_BYTES,
        copies=further * weights,
        tensors=instances * batch_bytes if graphs else 0,
        runs=instances * run_bytes,
        processes=stubs * (PYTORCH_BYTES - CONTEXT_BYTES),
    )


def memory_note(network: GpuNetwork, artifact: Artifact, plans: Sequence[GpuPlan]) -> str:
    """A note with the memory on each GPU. One item's memory was measured on the CPU, where the build ran it."""
    if not network.weight_bytes or not plans:
        return ""
    shares = []
    for plan in plans:
        needs = _memory(network, artifact, plan)
        words = needs.words(format_bytes, estimated=True)
        shares.append(f"about {format_bytes(needs.likely)} on {plan.place}, for {plan.count} ({words})")
    return (
        f"GPU memory: {'; '.join(shares)}; workspaces of convolutions and CUDA itself (0.6 GiB on an H100) come on top"
    )


@dataclass(frozen=True)
class GpuPlan:
    """The instances of a network on one GPU, its largest batch, and whether it has CUDA graphs.

    Args:
        place: the GPUs with this number of instances, such as "GPU 0" or "each GPU".
    """

    place: str
    instances: int
    max_batch_size: int
    graphs: bool

    @property
    def count(self) -> str:
        """The number of instances, in words."""
        return f"{self.instances} instance{'' if self.instances == 1 else 's'}"

    @classmethod
    def each(cls, groups: Sequence[Instances], max_batch_size: int, optimization: Optimization) -> tuple[GpuPlan, ...]:
        """The plans of all GPUs by the settings of the model; those with the same number of instances are one."""
        graphs = optimization.cuda is not None and optimization.cuda.graphs
        places: dict[int, list[str]] = {}
        for place, instances in _instances(groups).items():
            places.setdefault(instances, []).append(place)
        return tuple(
            cls(" and ".join(together), instances, max_batch_size, graphs) for instances, together in places.items()
        )


def _instances(groups: Sequence[Instances]) -> dict[str, int]:
    """GPU -> instances there; a group that names no GPU has its instances on each of them."""
    on_gpus = [group for group in groups if group.kind == "gpu"]
    on_all = sum(group.count or 1 for group in on_gpus if not group.gpus)
    named = sorted({gpu for group in on_gpus for gpu in group.gpus})
    instances = {
        f"GPU {gpu}": on_all + sum((group.count or 1) * group.gpus.count(gpu) for group in on_gpus) for gpu in named
    }
    return instances | ({f"each {'other ' if named else ''}GPU": on_all} if on_all else {})


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

    Only what no instance can do without is counted: weights, and CUDA itself in PyTorch's processes. Runs take more,
    and so do CUDA graphs, which an instance can do without.
    """
    if card is None:
        return
    model = next(plan for plan in plans if plan.name == spec.network_name)
    network = read_network(spec, artifact)
    gpus = GpuPlan.each(model.instances, model.max_batch_size, model.optimization)
    if not gpus:
        return
    gpu = max(gpus, key=lambda one: one.instances)
    needs = _memory(network, artifact, gpu)
    if needs.certain <= card.memory_bytes:
        return
    raise RenderError(
        f"{spec.file} serving",
        found=f"{model.name} takes {format_bytes(needs.certain)} of a GPU at least, for {gpu.count}"
        f" ({needs.words(format_bytes, estimated=False)}), and the largest one here, {card.name}, has"
        f" {format_bytes(card.memory_bytes)}",
        wanted="a network that this machine's GPU can hold",
        todo=f"choose a smaller variant{' or fewer instances' if needs.contexts else ''}; to build for another machine,"
        " hide the GPU of this one: CUDA_VISIBLE_DEVICES= tritonkit build",
    )
