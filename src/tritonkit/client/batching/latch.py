"""What a caller sleeps on until somebody has news for it."""

from __future__ import annotations

import asyncio
import threading

__all__ = ["Latch"]

_LONGEST_S = 3600.0  # a lock takes no infinite timeout; the caller looks again and sleeps on


class Latch:
    """A step that ends when the latch is opened or `seconds` have passed; waiting shuts it again.

    A raw lock, held while there is no news: the cheapest thing a thread can sleep on. A task sleeps
    on a future of its own loop, and whoever opens the latch runs in that loop.
    """

    seconds = _LONGEST_S
    _future: asyncio.Future[bool] | None = None

    def __init__(self) -> None:
        self._lock = lock = threading.Lock()
        lock.acquire()

    @property
    def in_task(self) -> bool:
        """Whether a task sleeps here now."""
        return self._future is not None

    def open(self) -> None:
        """Wake the one that sleeps here, or let the next sleep end at once.

        Two may not open one latch at the same moment: the batcher sees to that.
        """
        if self._future is not None:
            _finish(self._future, True)
        elif self._lock.locked():
            self._lock.release()

    def block(self) -> bool:
        """Sleep in this thread; whether it was opened."""
        seconds = self.seconds
        if seconds > _LONGEST_S:
            seconds = _LONGEST_S
        return self._lock.acquire(True, seconds if seconds > 0.0 else 0.0)

    async def wait(self) -> bool:
        """Sleep in this task; whether it was opened."""
        if self._lock.acquire(blocking=False):
            return True
        loop = asyncio.get_running_loop()
        future = self._future = loop.create_future()
        timer = loop.call_later(min(self.seconds, _LONGEST_S), _finish, future, False)
        try:
            opened: bool = await future
        finally:
            self._future = None
            timer.cancel()
        return opened


def _finish(future: asyncio.Future[bool], opened: bool) -> None:
    if not future.done():
        future.set_result(opened)
