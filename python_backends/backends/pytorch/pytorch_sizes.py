"""Batch sizes of a model on a GPU: those it has, and the one that a batch is rounded up to.

A CUDA graph replays the kernels of one batch size without starting each of them again. The native backends read the
same part of the configuration, `optimization.cuda`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backend_config import ModelError, is_batched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backend_config import TensorSpec

FIELD = "optimization.cuda.graph_spec"
UNBATCHED = 0
"""The size of a model with `max_batch_size: 0`, as Triton's schema has it."""


@dataclass(frozen=True)
class Sizes:
    """Rising batch sizes, and whether each gets a CUDA graph. Without sizes, batches run as they are."""

    sizes: tuple[int, ...] = ()
    graphs: bool = False

    def rounded(self, rows: int) -> int:
        """The smallest size that holds this number of rows; the number itself if no size does."""
        place = bisect_left(self.sizes, rows)
        return self.sizes[place] if place < len(self.sizes) else rows


def read_sizes(config: Mapping[str, Any]) -> Sizes:
    """The sizes of `graph_spec`, which end with the largest batch; with `graphs` alone powers of 2 up to it."""
    cuda = config.get("optimization", {}).get("cuda", {})
    graphs = bool(cuda.get("graphs"))
    largest = int(config.get("max_batch_size", 0))
    listed = {_size(spec, largest) for spec in cuda.get("graph_spec", [])}
    if not listed and not graphs:
        return Sizes()
    if not is_batched(config):
        return Sizes((UNBATCHED,), graphs)
    if listed and max(listed) != largest:
        raise ModelError(f"{FIELD}: the largest batch_size is {max(listed)}, wanted {largest}, the max_batch_size")
    powers = {1 << power for power in range(largest.bit_length())} | {largest}
    return Sizes(tuple(sorted(listed or powers)), graphs)


def free_inputs(inputs: Mapping[str, TensorSpec], batched: bool) -> list[str]:
    """Inputs with a free axis in addition to the batch: they have no size that a graph could be captured for."""
    return [name for name, spec in inputs.items() if -1 in spec.dims[1 if batched else 0 :]]


def _size(spec: Mapping[str, Any], largest: int) -> int:
    """One `graph_spec`'s batch size."""
    if spec.get("input"):
        raise ModelError(f"{FIELD}: input found; wanted batch_size alone")
    size = int(spec.get("batch_size", UNBATCHED))
    lowest = min(1, largest)
    if not lowest <= size <= largest:
        raise ModelError(f"{FIELD}: found batch_size {size}, wanted {lowest} to {largest}, the max_batch_size")
    return size
