"""One caller's part of a batch, and what comes back for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tritonkit.client.batching.latch import Latch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Item"]


class Item(Latch):
    """One caller's arrays (leading axis 1 in each), the clock's moment at which it gives up, and what
    it sleeps on meanwhile.

    The rest is the batcher's: an item is used for one call.
    """

    # What most items never change stands here: it costs nothing to make.
    outcome: Any = None
    """What comes back for it: what the sender made of its part of the answer, or an error."""
    carries: list[Item] | None = None
    """A batch that this item's caller is to send."""
    sends: list[Item] | None = None
    """The batch that its caller has taken and has not told everybody of yet."""
    flies = False
    """Whether that batch is counted as under way."""
    inside = False
    """Its caller is in the batcher."""
    left = False
    """Its caller is not in the batcher any more."""
    joined_at = 0.0
    left_at = 0.0
    """When its batch was sent."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], deadline: float) -> None:
        self.arrays = arrays
        self.deadline = deadline
        super().__init__()
