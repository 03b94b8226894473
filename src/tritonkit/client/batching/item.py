"""One caller's part of a batch, and what comes back for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tritonkit.client.batching.latch import Latch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Item", "Joined", "Outcome"]


class Outcome(NamedTuple):
    """What one item got: its outputs, batch axis (1) first, and what is known of the request."""

    outputs: Mapping[str, NDArray[Any]]
    sent: Any = None


class Joined(NamedTuple):
    """What a caller gets back from a batch.

    `waited_s` is the time from joining until the batch left, `batch_size` the number of items in
    the request that answered, `sent` what the sender told of it.
    """

    outputs: Mapping[str, NDArray[Any]]
    waited_s: float
    batch_size: int
    sent: Any


class Item:
    """One caller's arrays (leading axis 1 in each) and the clock's moment at which it gives up.

    The rest is the batcher's: an item is used for one call.
    """

    # What most items never change stands here: it costs nothing to make.
    outcome: Outcome | BaseException | None = None
    carries: list[Item] | None = None
    """A batch that this item's caller is to send."""
    woken = False
    """By a relay, in its turn."""
    inside = False
    """Its caller is in the batcher."""
    left = False
    """Its caller went away."""
    joined_at = 0.0
    left_at = 0.0
    """When its batch was sent."""
    size = 0

    def __init__(self, arrays: Mapping[str, NDArray[Any]], deadline: float) -> None:
        self.arrays = arrays
        self.deadline = deadline
        self.latch = Latch()
