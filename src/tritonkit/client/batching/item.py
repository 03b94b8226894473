"""One caller's part of a batch, and the batch."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from tritonkit.client.waiting import Wakeup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Batch", "Item", "State"]


class State(Enum):
    """Where an item or a batch is."""

    WAITING = "waiting"
    """In the queue, or in a batch that is not sent yet; such a batch."""
    SENT = "sent"
    """Under way."""
    OVER = "over"
    """An item whose caller has gone; a batch that was answered or given up."""


class Item(Wakeup):
    """One caller's arrays (leading axis 1 in each), the clock's moment at which it gives up, and what
    it sleeps on meanwhile.

    The rest is the batcher's: an item is used for one call.
    """

    # What most items never change stands here: it costs nothing to make.
    state = State.WAITING
    outcome: Any = None
    """What comes back for it: what the sender made of its part of the answer, or an error."""
    batch: Batch | None = None
    """The batch that its caller has taken to send, until everybody in it knows what came of it."""
    joined_at = 0.0

    def __init__(self, arrays: Mapping[str, NDArray[Any]], deadline: float) -> None:
        self.arrays = arrays
        self.deadline = deadline
        super().__init__()


class Batch:
    """Items that go in one request, which the caller of one of them sends."""

    __slots__ = ("items", "sender", "state")

    def __init__(self, items: list[Item], sender: Item) -> None:
        self.items = items
        self.sender = sender
        self.state = State.WAITING
