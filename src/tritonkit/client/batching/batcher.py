"""Callers that meet here go in one request; one of them sends it for all.

There is no thread: the first in the queue leads. It waits as long as `Pace` says, takes the batch,
sends it in its own steps and gives everyone their result, while the next in the queue leads the
next batch. A batch that has no caller to send it (its leader was cancelled) goes back to the
front of the queue, where the next one leads. So does one that was under way then, if its calls may run
twice; else those in it are told.

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

from tritonkit.client.batching.blame import again, may_be_one_items
from tritonkit.client.batching.pace import Pace
from tritonkit.client.batching.relay import Relay
from tritonkit.errors import ClientError, DeadlineExceeded, InferenceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

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
        self._pace = Pace(settings, min(settings.max_batch, max_batch_size))
        self._lock = threading.Lock()
        self._relay = Relay()
        self._callers = 0  # in `join`
        self._retired = False
        self._queue: deque[Item] = deque()  # the first leads
        self._sealed: deque[Item] = deque()  # each carries a batch that waits to be sent as it is
        self._flying = 0  # batches under way
        self._aboard = 0  # items in them
        self._wake_at = 0  # the queue's length at which the leader wants to be woken

    @property
    def used_at(self) -> float:
        """When the last caller came, by the clock."""
        return self._pace.arrived_at

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
            self._callers += 1
            item.inside = True
            self._queue.append(item)
            queued = len(self._queue)
            self._pace.arrived(now, queued + self._aboard)
            if queued == self._wake_at:
                self._queue[0].open()
        return queued == 1

    def _turn(self, item: Item) -> list[Item] | None:
        """The batch this caller is to send now; None: sleep, for as long as its latch says."""
        now = self._clock()
        with self._lock:
            item.seconds = item.deadline - now
            if item.outcome is None and now >= item.deadline:
                raise self._too_late(item, now)
            if self._flying >= self._pace.in_flight:
                return None
            if item.carries is not None:
                item.sends = item.carries
                self._sealed.remove(item)
                item.carries = None
                return self._board(item, item.sends, now)
            if self._sealed or not self._queue or self._queue[0] is not item:
                return None
            return self._lead(item, now)

    def _lead(self, item: Item, now: float) -> list[Item] | None:
        queue, pace = self._queue, self._pace
        soonest = min([other.deadline for other in islice(queue, pace.limit)])
        queued = len(queue)
        hold = pace.hold(now, queued, queued + self._aboard, item.joined_at, soonest)
        if hold > 0:
            self._wake_at = pace.share if pace.share > queued else pace.limit
            item.seconds = min(item.seconds, hold)
            return None
        self._wake_at = 0
        item.sends = batch = list(islice(queue, pace.limit))
        for _ in batch:
            queue.popleft()
        last = max(batch, key=lambda other: other.deadline)
        if item.deadline - now >= _PATIENCE * (last.deadline - now):
            return self._board(item, batch, now)
        self._seal(batch, last)
        item.sends = None
        return None

    def _board(self, leader: Item, batch: list[Item], now: float) -> list[Item]:
        batch = [item for item in batch if not item.left]
        size = len(batch)
        for item in batch:
            item.left_at = now
        leader.sends, leader.flies = batch, True
        self._flying += 1
        self._aboard += size
        self._wake_next()
        return batch

    def _seal(self, batch: list[Item], carrier: Item) -> None:
        carrier.carries = batch
        self._sealed.append(carrier)
        self._wake_next()

    def _wake_next(self) -> None:
        """Let the one look whose turn it is, if another batch may leave."""
        if self._flying < self._pace.in_flight:
            if self._sealed:
                self._sealed[0].open()
            elif self._queue:
                self._queue[0].open()

    def _fly(self, leader: Item, batch: list[Item]) -> Steps[None]:
        started = self._clock()
        try:
            outcomes = yield from self._send(batch, leader.deadline)
            self._check(batch, outcomes)
        except Exception as error:
            self._land(leader, batch, None)
            self._failed(leader, batch, error, started)
        else:
            self._land(leader, batch, started)
            self._hand_out(leader, batch, outcomes)
        leader.sends = None

    def _hand_out(self, leader: Item, batch: list[Item], outcomes: Sequence[Any]) -> None:
        """Give everyone their result: tasks are woken here, threads in turn."""
        threads = []
        with self._lock:
            for item, outcome in zip(batch, outcomes, strict=True):
                item.outcome = outcome
                if item is leader or item.left:
                    continue
                if item.in_task:
                    item.open()
                else:
                    threads.append(item)
            self._relay.wake(threads)

    def _check(self, batch: list[Item], outcomes: Sequence[Any]) -> None:
        if len(outcomes) != len(batch):
            raise InferenceError(
                self._where,
                found=f"results for {len(outcomes)} items",
                wanted=f"results for the {len(batch)} items sent",
            )

    def _land(self, leader: Item, batch: list[Item], started: float | None) -> None:
        now, size = self._clock(), len(batch)
        took_s = None if started is None else now - started
        with self._lock:
            leader.flies = False
            self._flying -= 1
            self._aboard -= size
            self._pace.landed(now, took_s, len(self._queue) + self._aboard, self._flying)
            self._wake_next()

    def _failed(self, leader: Item, batch: list[Item], error: Exception, started: float) -> None:
        harmless = self._idempotent or (isinstance(error, ClientError) and error.unprocessed)
        if harmless and may_be_one_items(error) and len(batch) > 1:
            self._halve(leader, batch)
            return
        # Nobody else opens these latches now: they are in no queue, and their batch is this caller's.
        late = float("inf")
        if harmless and isinstance(error, DeadlineExceeded):
            # The leader's time was up. Who has little more would only send into the same silence.
            late = leader.deadline + _LATE * (leader.deadline - started)
            self._hand_on(item for item in batch if item.deadline > late)
        for item in batch:
            if item.deadline <= late:
                item.outcome = error if item is leader else again(error)
                item.open()

    def _halve(self, leader: Item, batch: list[Item]) -> None:
        middle = len(batch) // 2
        with self._lock:
            for half in (batch[:middle], batch[middle:]):
                half = [item for item in half if not item.left]
                for item in half:
                    item.left_at = 0.0
                if half:
                    self._seal(half, leader if leader in half else half[0])

    def _hand_on(self, items: Iterable[Item]) -> None:
        with self._lock:
            self._queue.extendleft(reversed([item for item in items if not item.left]))
            self._wake_next()

    def _leave(self, item: Item) -> None:
        """The caller goes; may be done again after an interrupt in here."""
        if item.flies:
            self._land(item, item.sends or [], None)
        with self._lock:
            if not item.inside:
                return
            self._relay.leave(item)
            if item.outcome is None or item.sends is not None:
                self._give_back(item)
            self._callers -= 1
            item.inside = False

    def _give_back(self, item: Item) -> None:
        """Take the item from where it waits; the others of a batch it has taken lead or are told."""
        batch = [*(item.sends or ()), *(item.carries or ())]
        if not self._idempotent:
            for other in item.sends or ():
                if other.left_at and other.outcome is None and other is not item:
                    other.outcome = self._orphaned()
        elsewhere = {
            other
            for carrier in self._sealed
            if carrier is not item
            for other in carrier.carries or ()
        }
        self._queue = deque(
            other
            for other in dict.fromkeys([*batch, *self._queue])
            if other.outcome is None and not other.left and other not in elsewhere
        )
        if item in self._sealed:
            self._sealed.remove(item)
        item.carries = None
        for other in batch:
            if other.outcome is not None and not other.left:
                other.open()
        self._wake_next()

    def _orphaned(self) -> InferenceError:
        return InferenceError(
            self._where,
            found="the call that this one shared a request with was stopped while that was under way",
            wanted="a call that may run twice: it would have been sent again",
            todo="call with idempotent=True if the model changes nothing; else find out what it did",
        )

    def _too_late(self, item: Item, now: float) -> DeadlineExceeded:
        allowed_s = item.deadline - item.joined_at
        found = "nothing left of the time allowed before the request was sent"
        if allowed_s > 0:
            where = "under way" if item.left_at else "waiting to be sent"
            found = f"no answer within the {allowed_s:.3g} s left, {where}"
        return DeadlineExceeded(
            self._where,
            found=found,
            todo="allow more time, or call with less at once",
        )
