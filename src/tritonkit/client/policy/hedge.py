"""Calls a second server when the first is slow, and takes the first answer."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from tritonkit.client.policy.settings import Hedge
from tritonkit.client.steps import Send
from tritonkit.client.wire.transport import Pending
from tritonkit.errors import Overloaded, ServerUnavailable

__all__ = ["HedgedSend", "LatencyTracker"]

_LATEST = 512  # latencies of a model that count
_SORTED_EVERY = 64  # answers between two looks at the percentile
_MODELS = 128  # models tracked; above that the one called least recently is forgotten

_OF_ONE_SERVER = (ServerUnavailable, Overloaded)
"""Errors of a single server; any other error is an answer that another server would give too."""


@dataclass(slots=True)
class _Latencies:
    """The recent latencies of one model."""

    latest: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))
    count: int = 0
    slow_after_s: float | None = None


class LatencyTracker:
    """The seconds after which a call of a model is slow: a percentile of its latest answers."""

    def __init__(self, hedge: Hedge) -> None:
        self._hedge = hedge
        self._of = lru_cache(_MODELS)(lambda model: _Latencies())
        self._lock = threading.Lock()

    def add(self, model: str, seconds: float) -> None:
        """Note the seconds after which a call of the model was answered."""
        latencies = self._of(model)
        with self._lock:
            latencies.latest.append(seconds)
            latencies.count += 1
            enough = latencies.count >= self._hedge.least_calls
            if enough and (latencies.slow_after_s is None or latencies.count % _SORTED_EVERY == 0):
                rank = math.ceil(self._hedge.percentile * len(latencies.latest)) - 1
                latencies.slow_after_s = sorted(latencies.latest)[rank]

    def slow_after_s(self, model: str) -> float | None:
        """Seconds after which a second server is asked; None: too little is known."""
        return self._of(model).slow_after_s


@dataclass(slots=True, eq=False)
class HedgedSend:
    """A step: send, and after a while send to a second server too; the first answer wins.

    The loser is cancelled. A lost or full server does not end the race while the other call is under way.
    If neither answers, the first server's error is raised.
    """

    first: Send  # the call as it would be sent alone
    delay_s: float
    second: Callable[[], Send | None]  # requested after that time; None: it must not be sent
    helpers: concurrent.futures.Executor  # threads for second calls; tasks need none
    second_won: bool = False
    second_error: BaseException | None = None  # how the second call failed, if it did

    def block(self) -> memoryview:
        """Wait for the first call in this thread; only a slow call needs another thread."""
        first = self.first.begin()
        try:
            if not first.wait(self.delay_s) and (send := self.second()) is not None:
                return self._race(first, send)
            return first.result()
        except BaseException:
            first.cancel()
            raise

    def _race(self, first: Pending, send: Send) -> memoryview:
        """Make the second call in a helper's thread; its answer cancels the first."""
        decided = threading.Lock()  # taken once, by the thread that ends the race
        calls: list[Pending] = []

        def ask_second() -> memoryview:
            call = send.begin()
            calls.append(call)
            if decided.locked():
                call.cancel()
            answer = call.result()
            if decided.acquire(blocking=False):
                first.cancel()
            return answer

        try:
            helper = self.helpers.submit(ask_second)
        except RuntimeError as error:  # the client was closed, or the interpreter is ending
            self.second_error = error
            return first.result()
        answer, failed = memoryview(b""), None
        try:
            answer = first.result()
        except Exception as error:
            failed = error
            if isinstance(error, _OF_ONE_SERVER):
                concurrent.futures.wait([helper], send.timeout_s)
        finally:
            self.second_won = not decided.acquire(blocking=False)
            if not self.second_won:
                for call in calls:
                    call.cancel()
                if not helper.cancel() and helper.done():
                    self.second_error = helper.exception()
        if self.second_won:
            return helper.result()
        if failed is not None:
            raise failed
        return answer

    async def wait(self) -> memoryview:
        """Make each call a task."""
        first = asyncio.ensure_future(self.first.wait())
        tasks = {first}
        try:
            await asyncio.wait(tasks, timeout=self.delay_s)
            if not first.done() and (send := self.second()) is not None:
                tasks.add(asyncio.ensure_future(send.wait()))
            return await self._first_of(first, *(tasks - {first}))
        finally:
            for task in tasks:
                if task.done():
                    _seen(task)
                else:
                    task.add_done_callback(_seen)
                    task.cancel()

    async def _first_of(
        self, first: asyncio.Task[memoryview], second: asyncio.Task[memoryview] | None = None
    ) -> memoryview:
        running = {first} if second is None else {first, second}
        while running:
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if first.done() and not isinstance(first.exception(), _OF_ONE_SERVER):
                break
            if second is not None and second.done():
                self.second_error = second.exception()
                self.second_won = self.second_error is None
                if self.second_won:
                    return second.result()
        return first.result()


def _seen(task: asyncio.Task[memoryview]) -> None:
    """Read a task's error; otherwise asyncio reports it when the task is collected."""
    if not task.cancelled():
        task.exception()
