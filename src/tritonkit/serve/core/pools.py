"""Triton's pools of memory for the models that GPUs run, the same inside and outside a container.

This module needs only the standard library: the images have a copy of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CUDA_BYTES", "PINNED_BYTES", "GpuNeeds", "Pools", "plan_pools"]

_MIB = 1 << 20
PINNED_BYTES, CUDA_BYTES = 256 * _MIB, 64 * _MIB
"""Triton's own sizes of its pools, which are the smallest."""


@dataclass(frozen=True)
class GpuNeeds:
    """The needs of a model on the GPUs that run it.

    Args:
        groups: the groups of instances on GPUs: the number of instances, and the GPUs; all of them if it names none.
        batch_bytes: memory of an instance's largest batch, inputs and outputs together, in every version.
    """

    groups: tuple[tuple[int, tuple[int, ...]], ...]
    batch_bytes: int

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> GpuNeeds:
        """The needs by plain values of JSON."""
        groups = tuple((int(count), tuple(map(int, gpus))) for count, gpus in facts["groups"])
        return cls(groups, int(facts["batch_bytes"]))

    def instances(self, gpus: int) -> dict[int, int]:
        """GPU -> instances there, on a machine with this number of GPUs."""
        instances: dict[int, int] = {}
        for count, named in self.groups:
            for number in named or range(gpus):
                instances[number] = instances.get(number, 0) + count
        return instances


@dataclass(frozen=True)
class Pools:
    """Triton's pools of memory for tensors on their way: pinned memory, and each GPU's own; nothing without a GPU."""

    pinned_bytes: int = 0
    cuda_bytes: Mapping[int, int] = field(default_factory=dict)


def plan_pools(models: Iterable[GpuNeeds], gpus: int) -> Pools:
    """The pools for the models that GPUs run: room for the largest batch of each instance, inputs and outputs.

    GPUs that are not there have none: their model is refused elsewhere.
    """
    if not gpus:
        return Pools()
    pinned, cuda = 0, dict.fromkeys(range(gpus), 0)
    for model in models:
        there = {number: count for number, count in model.instances(gpus).items() if number in cuda}
        for number, instances in there.items():
            pinned += instances * model.batch_bytes
            cuda[number] += instances * model.batch_bytes
    return Pools(max(pinned, PINNED_BYTES), {number: max(size, CUDA_BYTES) for number, size in cuda.items()})
