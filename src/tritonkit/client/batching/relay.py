"""Threads that have their result are woken one after the other, each by the one before."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tritonkit.client.batching.item import Item

__all__ = ["Relay"]


class Relay:
    """A line of sleeping callers, of whom one at a time is woken.

    Threads that are all woken at once wait for the interpreter's lock, and each is switched to twice.
    In turn they take less of the processor, and no more time. Two lines at once would be in each
    other's way again, so those of a later batch stand behind those of an earlier one.

    Not for several threads at once: the batcher holds its lock.
    """

    def __init__(self) -> None:
        self._line: deque[Item] = deque()  # the first was woken and has not left

    def wake(self, items: Iterable[Item]) -> None:
        """Wake these in their turn: each has its outcome, is in a thread, and will `leave`."""
        running = bool(self._line)
        self._line.extend(items)
        if not running:
            self._next()

    def leave(self, item: Item) -> None:
        """The item's caller goes; if it was its turn, the next one's has come."""
        item.left = True
        if self._line:
            self._next()

    def _next(self) -> None:
        """Wake the first that has not left; to wake it twice does no harm."""
        line = self._line
        while line and line[0].left:
            line.popleft()
        if line:
            line[0].open()
