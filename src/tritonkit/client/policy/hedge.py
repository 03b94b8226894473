"""Asking a second server when the first is slow: when that is, and who answers first."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from tritonkit.client.policy.alarm import Alarm
from tritonkit.client.policy.settings import Hedge
from tritonkit.client.steps import Send
from tritonkit.errors import Overloaded, ServerUnavailable

__all__ = ["Latencies", "Race", "Raced"]

_KEPT = 512
"""Latest latencies kept of a model."""

_SORTED_EVERY = 64
"""Answers between two looks at the percentile."""

_ELSEWHERE = (ServerUnavailable, Overloaded)
"""Errors of one server; any other is an answer, and another server would say the same."""

_MODELS = 128
"""Models watched; above that the one seen first is forgotten."""


class Latencies:
    """After how long a call of a model is slow: a percentile of its latest answers."""

    def __init__(self, hedge: Hedge) -> None:
        self._hedge = hedge
        self._models: dict[str, _Recent] = {}
        self._lock = threading.Lock()

    def add(self, model: str, seconds: float) -> None:
        """A call of the model was answered after so long."""
        with self._lock:
            recent = self._models.get(model)
            if recent is None:
                if len(self._models) >= _MODELS:
                    del self._models[next(iter(self._models))]
                recent = self._models[model] = _Recent()
            recent.add(seconds, self._hedge)

    def slow_after_s(self, model: str) -> float | None:
        """Seconds after which a second server is asked; None: too little is known."""
        recent = self._models.get(model)
        return None if recent is None else recent.slow_after_s


class _Recent:
    """A ring of latencies."""

    __slots__ = ("_count", "_ring", "slow_after_s")

    def __init__(self) -> None:
        self._ring: list[float] = []
        self._count = 0
        self.slow_after_s: float | None = None

    def add(self, seconds: float, hedge: Hedge) -> None:
        if len(self._ring) < _KEPT:
            self._ring.append(seconds)
        else:
            self._ring[self._count % _KEPT] = seconds
        self._count += 1
        known = self._count >= hedge.least_calls
        if known and (self.slow_after_s is None or self._count % _SORTED_EVERY == 0):
            rank = math.ceil(hedge.percentile * len(self._ring)) - 1
            self.slow_after_s = sorted(self._ring)[rank]


class Raced(NamedTuple):
    """What came of a race that has a winner."""

    body: memoryview
    by_second: bool


class Race:
    """A step: send, and after a while send to a second server too; the first answer wins.

    The loser is cancelled. That one server is lost or full does not end the race while the other call
    is under way; the first server's error is raised when neither answered.

    Args:
        first: the call as it would be sent alone.
        delay_s: seconds before the second is sent.
        second: gives the second call, or None when it must not be sent. It is not called once the
            race is over, so whatever it took can be given back afterwards.
        alarm: calls back in threads.
    """

    __slots__ = (
        "_alarm",
        "_answer",
        "_delay_s",
        "_ended",
        "_first",
        "_first_call",
        "_lock",
        "_over",
        "_second",
        "_second_call",
        "second_error",
    )

    def __init__(
        self, first: Send, delay_s: float, second: Callable[[], Send | None], alarm: Alarm
    ) -> None:
        self._first = first
        self._delay_s = delay_s
        self._second = second
        self._alarm = alarm
        self._lock = threading.Lock()
        self._over = False
        self._answer: memoryview | None = None
        self._first_call: Any = None
        self._second_call: Any = None
        self._ended: threading.Event | None = None
        self.second_error: BaseException | None = None

    def block(self) -> Raced:
        """The first call waits in this thread; a helper thread is used only if it is slow."""
        self._first_call = _begun(self._first)
        entry = self._alarm.after(self._delay_s, self._run_second)
        try:
            body = self._first_call.result()
        except Exception as error:
            if self._second_won(wait=isinstance(error, _ELSEWHERE)):
                return self._by_second()
            raise
        except BaseException:
            self._give_up()
            raise
        finally:
            entry.cancel()
        return self._by_second() if not self._finished() else Raced(body, by_second=False)

    async def wait(self) -> Raced:
        """Each call is a task of its own."""
        first = asyncio.ensure_future(self._first.wait())
        second: asyncio.Task[memoryview] | None = None
        try:
            await asyncio.wait({first}, timeout=self._delay_s)
            if not first.done() and (send := self._second()) is not None:
                second = asyncio.ensure_future(send.wait())
            return await self._first_of(first, second)
        finally:
            for task in (first, second):
                if task is not None and not task.done():
                    task.add_done_callback(_seen)
                    task.cancel()

    async def _first_of(
        self, first: asyncio.Task[memoryview], second: asyncio.Task[memoryview] | None
    ) -> Raced:
        running = {first} if second is None else {first, second}
        while running:
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if first.done() and not isinstance(first.exception(), _ELSEWHERE):
                break
            if second is not None and second.done():
                self.second_error = second.exception()
                if self.second_error is None:
                    _seen(first)
                    return Raced(second.result(), by_second=True)
        return Raced(first.result(), by_second=False)

    def _run_second(self) -> None:
        """In a helper thread: send the second call, wait for it, and stop the first if it wins."""
        with self._lock:
            send = None if self._over else self._second()
            if send is None:
                return
            self._ended = threading.Event()
        try:
            call = _begun(send)
            with self._lock:
                self._second_call = call
                over = self._over
            if over:
                call.cancel()
            answer = call.result()
        except Exception as error:
            self.second_error = error
        else:
            with self._lock:
                won, self._over = not self._over, True
                self._answer = answer if won else None
            if won:
                self._first_call.cancel()
        finally:
            self._ended.set()

    def _finished(self) -> bool:
        """The first call was answered: whether it won. The second, if there is one, is cancelled."""
        with self._lock:
            won = self._answer is None
            self._over = True
            call = self._second_call
        if won and call is not None:
            call.cancel()
        return won

    def _second_won(self, *, wait: bool) -> bool:
        """The first call failed: whether the second has brought, or still brings, an answer."""
        with self._lock:
            ended = self._ended
            if self._answer is None and (ended is None or not wait):
                self._over = True
        if ended is not None and wait:
            self._wait(ended)
        if self._answer is None and self._second_call is not None:
            self._second_call.cancel()
        return self._answer is not None

    def _wait(self, ended: threading.Event) -> None:
        """No longer than the call's deadline: the second transport sees to that."""
        try:
            ended.wait()
        except BaseException:
            self._give_up()
            raise

    def _by_second(self) -> Raced:
        assert self._answer is not None  # noqa: S101 - asked before
        return Raced(self._answer, by_second=True)

    def _give_up(self) -> None:
        self._first_call.cancel()
        with self._lock:
            self._over = True
            call = self._second_call
        if call is not None:
            call.cancel()


def _begun(send: Send) -> Any:
    return send.transport.begin(send.method, send.body, send.timeout_s, send.headers)


def _seen(task: asyncio.Task[memoryview]) -> None:
    """Its error was noticed; otherwise asyncio reports it when the task is collected."""
    if task.done() and not task.cancelled():
        task.exception()
