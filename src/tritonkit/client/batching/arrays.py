"""Many items' arrays into one batch, and a batch's outputs back into items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tritonkit.errors import InferenceError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from tritonkit.client.batching.item import Item

__all__ = ["Arrays", "join_items", "layout", "split_outputs"]

Arrays: TypeAlias = "Mapping[str, NDArray[Any]]"


def layout(arrays: Arrays) -> Hashable:
    """Names, types and shapes: what two items must share to go in one batch."""
    if len(arrays) == 1:
        ((name, array),) = arrays.items()
        return name, array.dtype, array.shape
    return tuple((name, arrays[name].dtype, arrays[name].shape) for name in sorted(arrays))


def join_items(items: Sequence[Item]) -> Arrays:
    """The items' arrays one after the other along the first axis; one item's own are not copied.

    The batch is a new array each time: a hedged or cancelled request may still be reading it.
    """
    first = items[0].arrays
    if len(items) == 1:
        return first
    return {name: np.concatenate([item.arrays[name] for item in items]) for name in first}


def split_outputs(outputs: Arrays, count: int, where: str) -> list[Arrays]:
    """Each item's outputs, as read-only views (leading axis 1) of the batch's.

    Raises:
        InferenceError: at `where`, when an output does not hold `count` items.
    """
    if count == 1:
        return [outputs]
    for name, output in outputs.items():
        if not output.ndim or len(output) != count:
            raise InferenceError(
                f"{where}, output {name}",
                found=f"shape {list(output.shape)} for a batch of {count}",
                wanted=f"a first axis of {count}",
                todo="switch batching off for this model: its outputs have no batch axis",
            )
        output.flags.writeable = False
    return [{name: output[at : at + 1] for name, output in outputs.items()} for at in range(count)]
