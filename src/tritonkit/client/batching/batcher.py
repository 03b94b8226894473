"""Callers that meet here go in one request; one of them sends it for all.

There is no thread: the first in the queue leads. It waits as long as `BatchWindow` says, takes the
batch, sends it in its own steps and gives everyone their result, while the next in the queue leads the
next batch. A batch that has no caller to send it (its leader was cancelled) goes back to the
front of the queue, where the next one leads. So does one that was under way then, if its calls may run
twice; else those in it get an error that says so.

An interrupt (Ctrl-C, a signal's handler) may come in any line of the main thread that calls something,
and the others must not suffer by it. So what a caller has taken is noted at the caller in the same
breath, and `_leave` gives back whatever is noted, however far it got.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from tritonkit.client.batching.item import Batch, State
from tritonkit.client.batching.window import BatchWindow
from tritonkit.errors import (
    ClientError,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    Overloaded,
    UsageError,
    copy_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from tritonkit.client.batching.item import Item
    from tritonkit.client.batching.settings import Adaptive
    from tritonkit.client.steps import Step, Steps

__all__ = ["Batcher", "Retired", "SendMany"]

_PATIENCE = 0.9  # a leader with less than this part of the longest time left lets that one send
_LATE = 0.1  # less than this part of a failed request's time left: no use in sending again


class Retired(Exception):
    """The batcher takes no more callers."""


class SendMany(Protocol):
    """Send one request for many items before a moment of the clock; an outcome (not None) or an error
    for each, in order."""

    def __call__(
        self, items: Sequence[Item], deadline: float, /
    ) -> Generator[Step, Any, Sequence[Any]]:
        """The steps of it; an error raised concerns the whole request."""


class Batcher:
    """Joins items of one layout into requests of at most `max_batch_size`.

    Args:
        settings: how long to wait, how many at once.
        max_batch_size: what the model takes.
        send: the steps of one request.
        clock: the clock of the deadlines.
        where: names the call in errors.
        idempotent: whether the calls may run twice: then an item that the server may have begun with
            can go in another request, when the first one failed or lost its sender.

    Raises:
        UsageError: the model takes no batches.
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
        if max_batch_size < 1:
            raise UsageError(
                where,
                found=f"max_batch_size {max_batch_size}: the model takes no batches",
                wanted="a model with a batch axis",
                todo="call it without batching",
            )
        self._send = send
        self._clock = clock
        self._where = where
        self._idempotent = idempotent
        self._window = BatchWindow(settings, min(settings.max_batch, max_batch_size))
        self._lock = threading.Lock()
        self._callers: set[Item] = set()  # in `join`
        self._retired = False
        self._queue: deque[Item] = deque()  # the first leads
        self._sealed: deque[Batch] = deque()  # to be sent by their senders, as they are
        self._answered: deque[Item] = deque()  # of threads; the first was woken and has not left
        self._flying = 0  # batches under way
        self._aboard = 0  # items in them
        self._wake_at = 0  # the queue's length at which the leader wants to be woken

    @property
    def used_at(self) -> float:
        """When the last caller came, by the clock."""
        return self._window.arrived_at

    def retire(self) -> bool:
        """Take no more callers, if none is here; whether that is so."""
        with self._lock:
            self._retired = self._retired or not self._callers
            return self._retired

    def join(self, item: Item) -> Steps[Any]:
        """Go with the next batch; what came back for this item.

        Raises:
            DeadlineExceeded: the item's own deadline passed, in the queue or under way.
            ClientError: what the sender raised for this item, or for the batch it was in. On an
                InferenceError or InvalidInput a batch that may run twice, or surely did not run, is
                halved and sent again until the item that caused it is alone.
            InferenceError: the caller that sent this item with its own was stopped.
            Retired: nothing was done.
        """
        try:
            if not self._enter(item):
                yield item
            while item.outcome is None:
                batch = self._turn(item)
                if batch is None:
                    yield item
                else:
                    yield from self._fly(item, batch)
            self._leave(item)
        except BaseException:
            self._leave(item)  # also if the line before did not come to its end
            raise
        outcome = item.outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _enter(self, item: Item) -> bool:
        """Queue up; whether this caller is the first, and leads."""
        now = item.joined_at = self._clock()
        item.seconds = item.deadline - now
        with self._lock:
            if self._retired:
                raise Retired
            self._callers.add(item)
            self._queue.append(item)
            queued = len(self._queue)
            self._window.arrived(now, queued + self._aboard)
            if queued == self._wake_at:
                self._queue[0].wake()
        return queued == 1

    def _turn(self, item: Item) -> Batch | None:
        """The batch this caller is to send now; None: sleep, for `item.seconds` at most."""
        now = self._clock()
        with self._lock:
            item.seconds = item.deadline - now
            if item.outcome is None and now >= item.deadline:
                raise self._too_late(item)
            if self._flying >= self._window.in_flight:
                return None
            for batch in self._sealed:
                if batch.sender is item:
                    item.batch = batch
                    self._sealed.remove(batch)
                    return self._board(batch)
            if self._sealed or not self._queue or self._queue[0] is not item:
                return None
            return self._lead(item, now)

    def _lead(self, item: Item, now: float) -> Batch | None:
        """Take a batch from the queue, unless more items are worth waiting for."""
        queue, window = self._queue, self._window
        soonest = min([other.deadline for other in islice(queue, window.limit)])
        queued = len(queue)
        hold_s = window.hold_s(now, queued, queued + self._aboard, item.joined_at, soonest)
        if hold_s > 0:
            self._wake_at = window.share if window.share > queued else window.limit
            item.seconds = min(item.seconds, hold_s)
            return None
        self._wake_at = 0
        item.batch = batch = Batch(list(islice(queue, window.limit)), item)
        for _ in batch.items:
            queue.popleft()
        last = max(batch.items, key=lambda other: other.deadline)
        if item.deadline - now >= _PATIENCE * (last.deadline - now):
            return self._board(batch)
        batch.sender = last
        self._seal(batch)
        item.batch = None
        return None

    def _board(self, batch: Batch) -> Batch:
        """The batch is under way from now on."""
        items = batch.items = [item for item in batch.items if item.state is not State.OVER]
        size = len(items)
        for item in items:
            item.state = State.SENT
        batch.state = State.SENT
        self._flying += 1
        self._aboard += size
        self._wake_next()
        return batch

    def _seal(self, batch: Batch) -> None:
        """The batch is to be sent as it is, once its sender's turn has come."""
        self._sealed.append(batch)
        self._wake_next()

    def _wake_next(self) -> None:
        """Let the one look whose turn it is, if another batch may leave."""
        if self._flying < self._window.in_flight:
            if self._sealed:
                self._sealed[0].sender.wake()
            elif self._queue:
                self._queue[0].wake()

    def _fly(self, leader: Item, batch: Batch) -> Steps[None]:
        """Send the batch, and give everyone their outcome."""
        started = self._clock()
        items = batch.items
        try:
            outcomes = yield from self._send(items, leader.deadline)
            if len(outcomes) != len(items):
                raise InferenceError(
                    self._where,
                    found=f"results for {len(outcomes)} items",
                    wanted=f"results for the {len(items)} items sent",
                )
        except Exception as error:
            self._land(batch, None)
            self._failed(leader, items, error, started)
        else:
            self._land(batch, started)
            self._hand_out(leader, items, outcomes)
        leader.batch = None

    def _land(self, batch: Batch, started: float | None) -> None:
        """The batch is not under way any more; `started` is None if it was not answered."""
        now, size = self._clock(), len(batch.items)
        took_s = None if started is None else now - started
        with self._lock:
            batch.state = State.OVER
            self._flying -= 1
            self._aboard -= size
            self._window.landed(now, took_s, len(self._queue) + self._aboard, self._flying)
            self._wake_next()

    def _hand_out(self, leader: Item, items: list[Item], outcomes: Sequence[Any]) -> None:
        """Give everyone their result: tasks are woken here, threads in turn.

        Threads that are all woken at once wait for the interpreter's lock, and each is switched to
        twice. In turn they take less of the processor, and no more time. Two lines at once would be in
        each other's way again, so those of a later batch stand behind those of an earlier one.
        """
        with self._lock:
            quiet = not self._answered
            for item, outcome in zip(items, outcomes, strict=True):
                item.outcome = outcome
                if item is leader or item.state is State.OVER:
                    continue
                if item.in_task:
                    item.wake()
                else:
                    self._answered.append(item)
            if quiet and self._answered:
                self._wake_answered()

    def _wake_answered(self) -> None:
        """Wake the first thread in line that has not left; to wake it twice does no harm."""
        line = self._answered
        while line and line[0].state is State.OVER:
            line.popleft()
        if line:
            line[0].wake()

    def _failed(self, leader: Item, items: list[Item], error: Exception, started: float) -> None:
        harmless = self._idempotent or (isinstance(error, ClientError) and error.unprocessed)
        if harmless and _may_be_one_items(error) and len(items) > 1:
            self._halve(leader, items)
            return
        late = float("inf")
        if harmless and isinstance(error, DeadlineExceeded):
            # The leader's time was up. Who has little more would only send into the same silence.
            late = leader.deadline + _LATE * (leader.deadline - started)
            with self._lock:
                self._requeue([item for item in items if item.deadline > late])
                self._wake_next()
        for item in items:
            if item.deadline <= late:
                item.outcome = error if item is leader else copy_error(error)
                item.wake()

    def _halve(self, leader: Item, items: list[Item]) -> None:
        middle = len(items) // 2
        with self._lock:
            for half in (items[:middle], items[middle:]):
                half = [item for item in half if item.state is not State.OVER]
                for item in half:
                    item.state = State.WAITING
                if half:
                    self._seal(Batch(half, leader if leader in half else half[0]))

    def _requeue(self, items: list[Item]) -> None:
        """Put these at the front of the queue, unless they are in a batch, answered or gone."""
        for item in items:
            if item.state is State.SENT:
                item.state = State.WAITING
        sealed = {item for batch in self._sealed for item in batch.items}
        self._queue = deque(
            item
            for item in dict.fromkeys([*items, *self._queue])
            if item.outcome is None and item.state is not State.OVER and item not in sealed
        )

    def _leave(self, item: Item) -> None:
        """The caller goes; may be done again after an interrupt in here."""
        batch = item.batch
        if batch is not None and batch.state is State.SENT:
            self._land(batch, None)
        with self._lock:
            if item not in self._callers:
                return
            item.state = State.OVER
            if self._answered:
                self._wake_answered()
            if item.outcome is None or batch is not None:
                self._give_back(item, batch)
            self._callers.discard(item)

    def _give_back(self, item: Item, batch: Batch | None) -> None:
        """Take the item from where it waits; the others of a batch it has taken wait again or get an error."""
        others = [] if batch is None else [other for other in batch.items if other is not item]
        if batch is not None and batch.state is not State.WAITING and not self._idempotent:
            for other in others:
                if other.state is State.SENT and other.outcome is None:
                    other.outcome = self._orphaned()
        for sealed in [sealed for sealed in self._sealed if sealed.sender is item]:
            self._sealed.remove(sealed)
            others += sealed.items
        self._requeue(others)
        for other in others:
            if other.outcome is not None:
                other.wake()
        self._wake_next()

    def _orphaned(self) -> InferenceError:
        return InferenceError(
            self._where,
            found="the call that this one shared a request with was stopped while that was under way",
            wanted="a call that may run twice: it would have been sent again",
            todo="call with idempotent=True if the model changes nothing; else find out what it did",
        )

    def _too_late(self, item: Item) -> DeadlineExceeded:
        allowed_s = item.deadline - item.joined_at
        found = "nothing left of the time allowed before the request was sent"
        if allowed_s > 0:
            where = "under way" if item.state is State.SENT else "waiting to be sent"
            found = f"no answer within the {allowed_s:.3g} s left, {where}"
        return DeadlineExceeded(
            self._where,
            found=found,
            todo="allow more time, or call with less at once",
        )


def _may_be_one_items(error: Exception) -> bool:
    """Whether the batch without one item might have been answered.

    Not so for a full queue, a missing server or model, or a deadline: those concern every item,
    and the sender has already tried again as often as it may.
    """
    return isinstance(error, (InferenceError, InvalidInput)) and not isinstance(error, Overloaded)
