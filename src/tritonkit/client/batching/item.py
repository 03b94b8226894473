"""One caller's part of a batch; many of them joined into one, and the answer taken apart again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tritonkit.client.waiting import Wakeup
from tritonkit.errors import InferenceError

__all__ = ["Item", "join_items", "layout", "split_outputs"]

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


class Item(Wakeup):
    """One caller's arrays (leading axis 1 in each), the clock's moment at which it gives up, and what
    it sleeps on meanwhile.

    The rest is the batcher's: an item is used for one call.
    """

    # What most items never change stands here: it costs nothing to make.
    state: Literal["waiting", "sent", "gone"] = "waiting"
    outcome: Any = None
    """The item's result: the value that the sender made of its part of the answer, or an error."""
    half: object = None
    """A marker that items of a failed batch share if they are sent together again, without any others."""
    joined_at = 0.0

    def __init__(self, arrays: Arrays, deadline: float) -> None:
        self.arrays = arrays
        self.deadline = deadline
        super().__init__()


def layout(arrays: Arrays) -> Hashable:
    """Names, types and shapes, which must be equal for two items to go in one batch."""
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
        InferenceError: an output does not hold `count` items; the message names `where`.
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
        if type(output) is np.ndarray:  # not a GPU's
            output.flags.writeable = False
    return [{name: output[at : at + 1] for name, output in outputs.items()} for at in range(count)]
