"""Callers that meet here go in one request; one of them sends it for all.

There is no thread: the first in the queue leads. It waits as long as `BatchWindow` says, takes the batch, sends
it in its own steps and gives everyone their result, while the next in the queue leads the next batch. If it is
stopped (its task was cancelled), calls that may run twice go back to the front of the queue; the others get an
error that says so.

An interrupt (Ctrl-C, a signal's handler) may come in any line of the main thread that calls something, and the
others must not suffer by it. So who sends what is noted in `_flying`, by one operation, before the items leave
the queue and until each has an outcome or waits again: `_give_up` goes by that.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from tritonkit.client.batching.window import BatchWindow
from tritonkit.errors import ClientError, DeadlineExceeded, InferenceError, InvalidInput, Overloaded, copy_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tritonkit.client.batching.item import Item
    from tritonkit.client.batching.settings import Adaptive
    from tritonkit.client.steps import Steps

__all__ = ["Batcher", "SendMany"]

_PATIENCE = 0.9  # a leader with less than this part of the longest time left lets that one send
_LATE = 0.1  # less than this part of a failed request's time left: no use in sending again

SendMany: TypeAlias = "Callable[[Sequence[Item], float], Steps[Sequence[Any]]]"
"""Sends one request for many items before a moment of the clock; gives an outcome (not None) or an error for
each, in order. An error raised concerns the whole request."""


class Batcher:
    """Joins items of one layout into requests of at most `max_batch_size`.

    `where` names the call in errors; deadlines are moments of `clock`. If calls are `idempotent`, an item that
    the server may have begun with can go in another request, when the first one failed or lost its sender.
    """

    def __init__(
        self,
        settings: Adaptive,
        max_batch_size: int,
        send: SendMany,
        clock: Callable[[], float] = time.monotonic,
        *,
        where: str = "batching",
        idempotent: bool = False,
    ) -> None:
        self._send = send
        self._clock = clock
        self._where = where
        self._idempotent = idempotent
        self._window = BatchWindow(settings, min(settings.max_batch, max_batch_size))
        self._lock = threading.Lock()
        self._queue: deque[Item] = deque()  # the first leads
        self._flying: dict[Item, list[Item]] = {}  # requests under way: who sends which items
        self._aboard = 0  # items in them
        self._answered: deque[Item] = deque()  # of threads; the first was woken and has not left
        self._wake_at = 0  # the queue's length at which the leader wants to be woken

    @property
    def used_at(self) -> float:
        """The moment at which the last caller came."""
        return self._window.arrived_at

    def join(self, item: Item) -> Steps[Any]:
        """Join the next batch, and return this item's result.

        Raises:
            DeadlineExceeded: the item's own deadline passed, in the queue or under way.
            InferenceError: the caller whose request carried this item was stopped.
            ClientError: the sender raised it for this item or its batch. After an InferenceError or InvalidInput
                a batch that may run twice, or certainly did not run, is halved until the culprit is alone.
        """
        try:
            if not self._enter(item):
                yield item
            while item.outcome is None:
                items = self._turn(item)
                if items is None:
                    yield item
                else:
                    yield from self._fly(item, items)
            self._leave(item)
        except BaseException:
            self._give_up(item)
            raise
        outcome = item.outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _enter(self, item: Item) -> bool:
        """Queue up; return whether this caller is the first, and leads."""
        now = item.joined_at = self._clock()
        item.seconds = item.deadline - now
        with self._lock:
            self._queue.append(item)
            queued = len(self._queue)
            self._window.arrived(now, queued + self._aboard)
            if queued == self._wake_at:
                self._queue[0].wake()
        return queued == 1

    def _turn(self, item: Item) -> list[Item] | None:
        """The items this caller is to send now; None: sleep, for `item.seconds` at most."""
        now = self._clock()
        with self._lock:
            item.seconds = item.deadline - now
            if item.outcome is None and now >= item.deadline:
                raise self._too_late(item)
            first = self._queue[0] if self._queue else None
            if first is item and len(self._flying) < self._window.in_flight:
                return self._lead(item, now)
            return None

    def _lead(self, item: Item, now: float) -> list[Item] | None:
        """Take a batch from the queue, unless more items are worth waiting for or another should send it."""
        queue, window = self._queue, self._window
        first = islice(queue, window.limit)
        batch = list(takewhile(lambda other: other.half is item.half, first))
        if item.half is None:
            queued = len(queue)
            joined = min([other.joined_at for other in batch])
            soonest = min([other.deadline for other in batch])
            hold_s = window.hold_s(now, queued, queued + self._aboard, joined, soonest)
            if hold_s > 0:
                self._wake_at = window.share if window.share > queued else window.limit
                item.seconds = min(item.seconds, hold_s)
                return None
        self._wake_at = 0
        last = max(batch, key=lambda other: other.deadline)
        if item.deadline - now < _PATIENCE * (last.deadline - now):
            self._requeue([last])
            self._wake_next()
            return None
        aboard = self._aboard + len(batch)
        self._flying[item] = batch
        self._aboard = aboard
        self._queue = deque(islice(queue, len(batch), None))
        for other in batch:
            other.state = "sent"
        self._wake_next()
        return batch

    def _wake_next(self) -> None:
        """Wake the caller whose turn it is, if another batch may leave."""
        if self._queue and len(self._flying) < self._window.in_flight:
            self._queue[0].wake()

    def _fly(self, leader: Item, items: list[Item]) -> Steps[None]:
        """Send the batch, and give everyone their outcome."""
        started = self._clock()
        try:
            outcomes = yield from self._send(items, leader.deadline)
            if len(outcomes) != len(items):
                raise InferenceError(
                    self._where,
                    found=f"results for {len(outcomes)} items",
                    wanted=f"results for the {len(items)} items sent",
                )
        except Exception as error:
            self._failed(leader, items, error, started)
        else:
            self._hand_out(leader, items, outcomes, started)

    def _land(self, leader: Item, took_s: float | None) -> None:
        """Note that the leader's batch has ended; `took_s` is None if it was not answered."""
        aboard = self._aboard - len(self._flying[leader])
        del self._flying[leader]
        self._aboard = aboard
        present = len(self._queue) + aboard
        self._window.landed(self._clock(), took_s, present, len(self._flying))
        self._wake_next()

    def _hand_out(self, leader: Item, items: list[Item], outcomes: Sequence[Any], started: float) -> None:
        """Give all callers their results: tasks are woken here, threads one by one, in one line for all batches.

        Threads that are woken together wait for the interpreter's lock, and each costs two switches.
        One after the other they need less processor time and no longer.
        """
        took_s = self._clock() - started
        with self._lock:
            quiet = not self._answered
            for item, outcome in zip(items, outcomes, strict=True):
                item.outcome = outcome
                if item is leader or item.state == "gone":
                    continue
                if item.in_task:
                    item.wake()
                else:
                    self._answered.append(item)
            self._land(leader, took_s)
            if quiet:
                self._wake_answered()

    def _wake_answered(self) -> None:
        """Wake the first thread in line that has not left; to wake it twice does no harm."""
        line = self._answered
        while line and line[0].state == "gone":
            line.popleft()
        if line:
            line[0].wake()

    def _failed(self, leader: Item, items: list[Item], error: Exception, started: float) -> None:
        """Send the items again if that may help and does no harm; otherwise all get the error."""
        harmless = self._idempotent or (isinstance(error, ClientError) and error.unprocessed)
        # Whether without one of them the others might be answered. An overload concerns all.
        one_items = isinstance(error, (InferenceError, InvalidInput)) and not isinstance(error, Overloaded)
        again: list[Item] = []
        with self._lock:
            if harmless and one_items and len(items) > 1:
                middle = len(items) // 2
                for half in (items[:middle], items[middle:]):
                    mark = object()
                    for item in half:
                        item.half = mark
                again = items
            elif harmless and isinstance(error, DeadlineExceeded):
                # The leader's time was up. Who has little more would only send into the same silence.
                late = leader.deadline + _LATE * (leader.deadline - started)
                again = [item for item in items if item.deadline > late]
            self._requeue(again)
            for item in items:
                if item.state == "sent":
                    item.outcome = error if item is leader else copy_error(error)
                    item.wake()
            self._land(leader, None)

    def _requeue(self, items: list[Item]) -> None:
        """Put these at the front of the queue, unless they are answered or gone."""
        for item in items:
            if item.state == "sent":
                item.state = "waiting"
        self._queue = deque(
            item for item in dict.fromkeys([*items, *self._queue]) if item.outcome is None and item.state != "gone"
        )

    def _leave(self, item: Item) -> None:
        """Let the caller go with its outcome."""
        with self._lock:
            item.state = "gone"
            if self._answered:
                self._wake_answered()

    def _give_up(self, item: Item) -> None:
        """Remove the caller, wherever it is; items it was sending wait again or get an error."""
        with self._lock:
            item.state = "gone"
            others = [other for other in self._flying.get(item, []) if other is not item]
            for other in others:
                if other.state == "sent" and other.outcome is None and not self._idempotent:
                    other.outcome = InferenceError(
                        self._where,
                        found="the call that this one shared a request with was stopped while that was under way",
                        wanted="a call that may run twice, which would have been sent again",
                        todo="call with idempotent=True if the model changes nothing; else find out what it did",
                    )
            self._requeue(others)
            for other in others:
                if other.outcome is not None:
                    other.wake()
            if item in self._flying:
                self._land(item, None)
            self._wake_next()
            self._wake_answered()

    def _too_late(self, item: Item) -> DeadlineExceeded:
        allowed_s = item.deadline - item.joined_at
        reason = "nothing left of the time allowed before the request was sent"
        if allowed_s > 0:
            where = "under way" if item.state == "sent" else "waiting to be sent"
            reason = f"no answer within the {allowed_s:.3g} s left, {where}"
        todo = "allow more time, or send fewer items in a call"
        return DeadlineExceeded(self._where, found=reason, todo=todo)
