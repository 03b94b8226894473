"""The one thing that threads and tasks sleep on in this package.

One sleeper, woken by one or many others:

    wakeup = Wakeup(seconds=2.0)            # shared with those that will call `wakeup.wake()`
    woken = yield wakeup                    # in a generator of steps; False: two seconds passed
    woken = wakeup.block()                  # in a thread; `await wakeup.wait()` in a task

Many sleepers, one event that happens once:

    event = Event()                         # `event.set()` wakes all who wait now or later
    happened = yield from event.wait_for(2.0)
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritonkit.client.steps import Steps

__all__ = ["Event", "Wakeup"]


class Wakeup:
    """A step that ends when `wake` is called or `seconds` have passed; it can be used again after that.

    One thread or task sleeps here at a time; any thread may call `wake`, as often as it likes. A call
    that comes before the sleep is not lost: it ends the next sleep immediately.

    Args:
        seconds: the longest time of the next sleep, infinity allowed; may be set before each sleep.
    """

    _future: asyncio.Future[bool] | None = None

    def __init__(self, seconds: float = threading.TIMEOUT_MAX) -> None:
        self.seconds = seconds
        # A raw lock, held until a call of `wake`: the cheapest object a thread can sleep on.
        self._lock = lock = threading.Lock()
        lock.acquire()

    @property
    def in_task(self) -> bool:
        """Whether a task is waiting."""
        return self._future is not None

    def wake(self) -> None:
        """End the sleep, or the next one if there is none now."""
        try:
            self._lock.release()
        except RuntimeError:  # woken before, and the sleeper has not continued yet
            return
        future = self._future
        if future is not None:
            _finish(future)

    def block(self) -> bool:
        """Sleep in this thread; return whether it was woken."""
        seconds = self.seconds
        if seconds > threading.TIMEOUT_MAX:
            seconds = threading.TIMEOUT_MAX
        return self._lock.acquire(True, seconds if seconds > 0.0 else 0.0)

    async def wait(self) -> bool:
        """Sleep in this task; return whether it was woken."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        # The order matters: `wake` releases the lock first and then looks for a future.
        self._future = future
        try:
            if not self._lock.acquire(blocking=False):
                seconds = min(self.seconds, threading.TIMEOUT_MAX)
                timer = loop.call_later(seconds, _set, future)
                try:
                    await future
                finally:
                    timer.cancel()
                return self._lock.acquire(blocking=False)
            return True
        finally:
            self._future = None


def _finish(future: asyncio.Future[bool]) -> None:
    """Set a future from any thread."""
    loop = future.get_loop()
    if asyncio._get_running_loop() is loop:
        _set(future)
        return
    try:
        loop.call_soon_threadsafe(_set, future)
    except RuntimeError:  # the loop was closed, and the task that slept in it is gone
        return


def _set(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)


class Event:
    """An event that happens once; any number of threads and tasks may wait for it.

    It takes no lock, so the garbage collector may call `set` at any point.
    """

    __slots__ = ("_sleepers", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._sleepers: list[Wakeup] = []

    def set(self) -> None:
        """Make it happen: wake all that wait."""
        self.is_set = True
        for sleeper in tuple(self._sleepers):
            sleeper.wake()

    def wait_for(self, seconds: float) -> Steps[bool]:
        """Sleep until it happens or the seconds have passed; return whether it has happened."""
        sleeper = Wakeup(seconds)
        self._sleepers.append(sleeper)
        try:
            if not self.is_set:
                yield sleeper
        finally:
            self._sleepers.remove(sleeper)
        return self.is_set
