"""Requests of several items: those of a workload joined along their first axis, and their answers split again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonkit.client.batching import layout, split_outputs
from tritonkit.client.inputs import checked_sizes
from tritonkit.client.wire.signature import ModelSignature
from tritonkit.errors import UsageError
from tritonkit.perf.load.workload import Check, Outputs

__all__ = ["Encodable", "joined", "layouts"]


@dataclass(frozen=True)
class Encodable:
    """One request before encoding: its arrays, with the batch axis first if the model batches, its number of items, and
    the check of its answer."""

    arrays: Mapping[str, NDArray[Any]]
    items: int
    check: Check


def layouts(requests: Sequence[Encodable]) -> list[int]:
    """A number for the names, types and shapes of each request's arrays: equal ones have the same number,
    whatever their number of items."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(_item_layout(request), len(numbers)) for request in requests]


def joined(signature: ModelSignature, requests: Sequence[Encodable], size: int) -> tuple[Encodable, ...]:
    """Requests of `size` items each, enough that each item is in one; items of equal shape are taken in a circle.
    Each item's own check sees its part of the answer; a request is wrong if one of its items is.

    Args:
        requests: requests of one item each.
        size: items of a request; 1 returns `requests` as they are.

    Raises:
        UsageError: the model does not batch or takes fewer items, a request has several, or no two have one shape.
        InvalidInput: the joined requests are too large for one message.
    """
    if size == 1:
        return tuple(requests)
    _refuse(signature, requests, size)
    requests_of_size: list[Encodable] = []
    numbers = np.array(layouts(requests))
    for number in np.unique(numbers):
        own = np.flatnonzero(numbers == number)
        count = -(-len(own) // size)
        for places in np.arange(count * size).reshape(count, size) % len(own):
            requests_of_size.append(_together([requests[k] for k in own[places]], signature))
    return tuple(requests_of_size)


def _item_layout(request: Encodable) -> Hashable:
    if request.items == 1:
        return layout(request.arrays)
    return layout({name: array[:1] for name, array in request.arrays.items()})


def _refuse(signature: ModelSignature, requests: Sequence[Encodable], size: int) -> None:
    where, most = f"model {signature.name}", signature.max_batch_size
    tensors = [*signature.inputs.values(), *signature.outputs.values()]
    if most < 1 or not all(tensor.batched for tensor in tensors):
        raise UsageError(
            f"{where}: requests of {size} items",
            found="it does not batch",
            wanted="a max_batch_size, and a batch axis in every tensor",
            todo="send single items",
        )
    if size > most:
        raise UsageError(
            f"{where}: requests of {size} items",
            found=f"its max_batch_size is {most}",
            wanted=f"at most {most} items",
            todo="join fewer, or raise max_batch_size",
        )
    if several := next((request.items for request in requests if request.items != 1), 0):
        raise UsageError(
            f"{where}: requests of {size} items",
            found=f"a request of {several} in its workload",
            wanted="requests of one item, to be joined",
            todo="give it single items",
        )
    shapes = len(set(layouts(requests)))
    if 1 < shapes == len(requests):
        raise UsageError(
            f"{where}: requests of {size} items",
            found=f"{shapes} requests of {shapes} shapes",
            wanted="two of one shape at least: items of other shapes cannot go in one request",
            todo="pad its inputs to a few shapes, or send single items",
        )


def _together(parts: Sequence[Encodable], signature: ModelSignature) -> Encodable:
    arrays = {name: np.concatenate([request.arrays[name] for request in parts]) for name in parts[0].arrays}
    checks = tuple(request.check for request in parts)

    def check(outputs: Outputs) -> str:
        items = split_outputs(outputs, len(checks), f"model {signature.name}")
        wrong = (own(item) for own, item in zip(checks, items, strict=True))
        return next(filter(None, wrong), "")

    return Encodable(arrays, checked_sizes(signature, arrays), check)
