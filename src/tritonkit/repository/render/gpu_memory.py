"""The GPU memory that a network's instances take, as far as it can be counted before it is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tritonkit.errors import RenderError
from tritonkit.repository.export.artifact import Artifact
from tritonkit.repository.modelspec import Spec
from tritonkit.repository.modelspec.serving import Instances, Optimization, Serving
from tritonkit.repository.modelspec.units import format_bytes
from tritonkit.repository.render.gpu_network import GpuNetwork, read_network
from tritonkit.repository.render.gpu_target import Filling
from tritonkit.repository.render.values import ModelPlan

__all__ = ["Card", "check_card", "check_limit", "memory_note"]

_PYTORCH_BYTES = 620 << 20
"""GPU memory of a process with PyTorch before its network, on an H100."""
_LIMIT = "gpu_mem_limit"
"""The bound on the memory of one instance, in bytes: an option of the CUDA provider, and a parameter of NVIDIA's
backend."""


@dataclass(frozen=True)
class Card:
    """A GPU of the building machine, the one with the most memory."""

    name: str
    memory_bytes: int


def memory_note(
    network: GpuNetwork, artifact: Artifact, groups: Sequence[Instances], filling: Filling, max_batch_size: int
) -> str:
    """A note with the memory on each GPU: weights, a largest batch, and the inputs and outputs of every size.

    One item's memory was measured on the CPU, where the build ran it.
    """
    count = sum(group.count or 1 for group in groups if group.kind == "gpu")
    largest = max(1, max_batch_size)
    item = artifact.start.memory_bytes if artifact.start else 0
    rows = sum(max(1, size) for size in filling.sizes) or largest
    needs = {
        "PyTorch": _PYTORCH_BYTES if artifact.form.startswith("torch") else 0,
        "weights": network.weight_bytes,
        f"a batch of {largest}, by one item on the CPU": largest * item,
        "inputs and outputs": rows * network.item_bytes,
    }
    if not network.weight_bytes or not count:
        return ""
    counted = ", ".join(f"{what} {format_bytes(size)}" for what, size in needs.items() if size)
    return (
        f"GPU memory: about {format_bytes(count * sum(needs.values()))} on each GPU, for {count} x ({counted});"
        " workspaces of convolutions and CUDA itself (0.6 GiB on an H100) come on top"
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

    Only what its instances hold from their start is counted: the weights of each session (`serve/gpu_memory.py` has the
    same rule), and places for inputs and outputs where there are graphs. Runs take more, CUDA too.
    """
    if card is None:
        return
    plan = next(plan for plan in plans if plan.name == spec.network_name)
    network, cuda = read_network(spec, artifact), plan.optimization.cuda
    count = max((group.count or 1 for group in plan.instances if group.kind == "gpu"), default=0)
    graphs = cuda is not None and cuda.graphs
    sessions = count if graphs or artifact.form.startswith("torch") else min(count, 1)
    weights = sessions * network.weight_bytes
    tensors = count * max(1, plan.max_batch_size) * network.item_bytes if graphs else 0
    if weights + tensors <= card.memory_bytes:
        return
    instances = f"{count} instance{'' if count == 1 else 's'}"
    shares = {f"weights for {instances}": weights, f"inputs and outputs of a largest batch for {instances}": tensors}
    counted = ", ".join(f"{name} {format_bytes(size)}" for name, size in shares.items() if size)
    raise RenderError(
        f"{spec.file} serving",
        found=f"{plan.name} takes {format_bytes(weights + tensors)} of a GPU at least ({counted}), and the largest one"
        f" here, {card.name}, has {format_bytes(card.memory_bytes)}",
        wanted="a network that this machine's GPU can hold",
        todo="choose a smaller variant, fewer instances or a smaller max_batch_size; to build for another machine, hide"
        " the GPU of this one: CUDA_VISIBLE_DEVICES= tritonkit build",
    )
