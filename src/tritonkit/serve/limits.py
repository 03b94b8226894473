"""The largest request a server takes, out of its models' configurations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tritonkit.serve.shm import MIB, dtype_name, largest_sample, tensor_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritonkit.serve.repository import ServedModel
    from tritonkit.serve.shm import ShmPlan

__all__ = ["MESSAGE_LEAST", "MESSAGE_MOST", "largest_file", "largest_message"]

MESSAGE_LEAST = 64 * MIB
"""Whatever the models say: a page of photographs, a long text."""

MESSAGE_MOST = 1024 * MIB
"""Triton holds a message about three times while it takes it apart (1.9 GB took 6.2 GB, 2.51)."""

_OPEN = 4
"""How much larger than the samples of the warm-up an open axis or a BYTES value may be."""

_ELEMENT = MIB
"""A BYTES value may have this much in any case."""

_ROOM = 1.5
"""What a region takes over what is written into it (shm.py, SLACK)."""


def largest_message(models: Iterable[ServedModel]) -> int:
    """Bytes of the largest request that a model's configuration allows, its largest batch, in whole MiB.

    Where the configuration leaves an axis open or a tensor is BYTES, the samples of the warm-up show what
    is usual, and four times that is taken.
    """
    most = max((_request(model) for model in models), default=0)
    bounded = min(max(most + MIB, MESSAGE_LEAST), MESSAGE_MOST)
    return math.ceil(bounded / MIB) * MIB


def largest_file(plan: ShmPlan, message_bytes: int) -> int:
    """Bytes that one stub's region may grow to: its plan twice, and room for the largest request."""
    planned = max((need.bytes_each for need in plan.models), default=0)
    return 2 * planned + math.ceil(_ROOM * message_bytes)


def _request(model: ServedModel) -> int:
    axis, element = largest_sample(model)
    item = sum(
        tensor_bytes(dtype_name(tensor), tensor.dims, _OPEN * axis, max(_ELEMENT, _OPEN * element))
        for tensor in model.config.input
    )
    return int(item * max(1, model.config.max_batch_size))
