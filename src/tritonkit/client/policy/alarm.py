"""Doing something later, unless it is called off: one thread that mostly sleeps, made when needed."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["Alarm", "Entry"]

_HELPERS = 16
"""Threads in which what is due runs; more at once wait their turn."""

_IDLE_S = 5.0
"""The thread ends when nothing is to come for this long."""


class Entry:
    """Something to come; entries compare by their moment."""

    __slots__ = ("_moment", "run")

    def __init__(self, moment: float, run: Callable[[], None]) -> None:
        self._moment = moment
        self.run: Callable[[], None] | None = run

    def __lt__(self, other: Entry) -> bool:
        return self._moment < other._moment

    @property
    def left_s(self) -> float:
        """Seconds until it is due."""
        return self._moment - time.monotonic()

    def cancel(self) -> None:
        """Call it off; it may already run."""
        self.run = None


class Alarm:
    """Runs things later in a few helper threads; setting and calling off is cheap.

    What is called off stays in the heap until its moment, so the thread is woken only by something
    due earlier than all it knows.
    """

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._changed = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._helpers: ThreadPoolExecutor | None = None
        self._closed = False

    def after(self, seconds: float, run: Callable[[], None]) -> Entry:
        """Run it after so many seconds; never after `close`."""
        entry = Entry(time.monotonic() + seconds, run)
        with self._changed:
            heapq.heappush(self._heap, entry)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._watch, name="tritonkit-alarm", daemon=True
                )
                self._thread.start()
            elif self._heap[0] is entry:
                self._changed.notify()
        return entry

    def close(self) -> None:
        """Run nothing more; what runs goes on to its end."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            self._changed.notify()
            helpers, self._helpers = self._helpers, None
        if helpers is not None:
            helpers.shutdown(wait=False, cancel_futures=True)

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                while self._heap and self._heap[0].run is None:
                    heapq.heappop(self._heap)
                if not self._heap:
                    if not self._changed.wait(_IDLE_S) and not self._heap:
                        break
                elif (left := self._heap[0].left_s) > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                else:
                    self._start(heapq.heappop(self._heap).run)
            self._thread = None

    def _start(self, run: Callable[[], None] | None) -> None:
        if run is not None:
            if self._helpers is None:
                self._helpers = ThreadPoolExecutor(_HELPERS, "tritonkit-hedge")
            try:
                self._helpers.submit(run)
            except RuntimeError:  # the interpreter is on its way out and starts no threads
                self._closed = True
