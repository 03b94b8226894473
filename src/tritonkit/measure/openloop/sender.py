"""Sending requests at moments that are given, whatever the server does, and noting when answers come.

One thread and no tasks: a timer of an event loop is a millisecond late, and a task for each request costs
as much as the request. Answers are checked while no request is under way: beside one, its own answer would wait for
the check.
"""

from __future__ import annotations

import gc
import select
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tritonkit.errors import ClientError, InferenceError, ServerUnavailable
from tritonkit.measure.openloop.arrivals import Moments
from tritonkit.measure.workload import Check
from tritonkit.wire.answer import decode
from tritonkit.wire.http2.call import Call
from tritonkit.wire.http2.polled_connection import PolledConnection
from tritonkit.wire.http2.status import answer_of
from tritonkit.wire.transport import Body

__all__ = ["INTERRUPTED", "MISSED", "Prepared", "Record", "Sender", "Stop"]

_CONNECT_S: Final = 2.0
_AGAIN_S: Final = 0.25
"""Before a server that is not there is tried again."""
_GONE_S: Final = 5.0
"""A server that is not there for so long ends the run."""
_CHECKED_AT_ONCE: Final = 4
"""Items whose answers are checked before the sockets are looked at again."""
_UNCHECKED_BYTES: Final = 128 << 20
"""Of answers that may wait for their check: beyond that, some are checked beside requests that are under way."""
_ANSWER_BYTES: Final = 400
"""What an answer takes beside its own bytes."""
_MOST_UNDER_WAY: Final = 16_000
"""On a connection: beyond that requests wait here, late, for a server's guard ends a connection with more."""
_LATEST_S: Final = 0.1
"""How long the loop sleeps at most, for deadlines."""
_METHOD: Final = "ModelInfer"

INTERRUPTED: Final = "interrupted"
MISSED: Final = "the target is missed"
"""Why runs end early, beside a server that is gone."""


@dataclass(frozen=True)
class Prepared:
    """A request as it is sent: one message, the check of its answer, and how many items it has."""

    body: Body
    check: Check
    items: int = 1


@dataclass(frozen=True)
class Stop:
    """When a run is over before its end.

    Args:
        late_ms: requests that take longer, whether their answer has come or not, and failures are counted,
        most_late: and the run ends when there are more than so many; None: never.
        from_s: requests due before this moment of the run are not counted.
    """

    late_ms: float = 0.0
    most_late: int | None = None
    from_s: float = 0.0


@dataclass(frozen=True)
class Record:
    """What became of each request of a run, in the order of their moments; times in seconds from its start.

    Args:
        intended: float64 [n], when it was to be sent.
        sent: float64 [n], when it was; NaN where it was not.
        answered: float64 [n], when its answer or failure came; NaN where none did.
        outcome: int32 [n]: 0 right, above 0 a failure (`failures[outcome - 1]`), -1 not sent.
        failures: their words.
        cpu_s: processor time of the run.
        ended: why it ended early, if so.
    """

    intended: NDArray[np.float64]
    sent: NDArray[np.float64]
    answered: NDArray[np.float64]
    outcome: NDArray[np.int32]
    failures: tuple[str, ...]
    cpu_s: float
    ended: str = ""


class Sender:
    """Sends one run's requests.

    Args:
        addresses: of the servers, which get requests in turns.
        requests: what may be sent.
        timeout_s: after which a request has failed.
        stop: see `Stop`.
        interrupted: asked now and then: whether to send no more.
        most: requests under way at each server, as from so many callers who each wait for their answer: the
            next one counts as sent when there is room for it. None: as many as are due.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        requests: Sequence[Prepared],
        timeout_s: float,
        stop: Stop,
        interrupted: Callable[[], bool],
        most: int | None = None,
    ) -> None:
        self._requests, self._timeout_s, self._stop = requests, timeout_s, stop
        self._most = most
        self._too_late = f"DeadlineExceeded: no answer within {timeout_s:g} s"
        self._interrupted = interrupted
        self._addresses = addresses
        self._connections: list[PolledConnection | None] = [
            PolledConnection(address, time.monotonic() + _CONNECT_S) for address in addresses
        ]
        self._retry_at = [0.0] * len(addresses)
        self._gone_since: float | None = None
        self._leaving: list[PolledConnection] = []
        """Those that take no new calls and have some."""
        self._under_way: dict[Call, tuple[int, PolledConnection]] = {}
        """The request of each call, in the order in which they began."""
        self._backlogs: list[deque[int]] = [deque() for _ in addresses]
        """Requests whose server takes no more calls at once."""
        self._unchecked: deque[tuple[int, memoryview]] = deque()
        self._unchecked_bytes = 0
        self._words: dict[str, int] = {}
        self._late = self._looked_at = 0
        self._ended = ""

    def run(self, moments: Moments, choice: NDArray[np.int64], start: float) -> Record:
        """Send request `choice[k]` at `start + moments[k]`, on the monotonic clock, and wait for the answers."""
        count = len(moments)
        self._choice = array("q", choice.astype(np.int64).tobytes())
        self._due = array("d", (moments + start).tobytes())
        self._count_from = start + self._stop.from_s
        self._sent = array("d", [np.nan]) * count
        self._answered = array("d", [np.nan]) * count
        self._outcome = array("i", [-1]) * count
        gc.collect()
        gc.freeze()
        gc.disable()
        cpu = time.process_time()
        try:
            self._loop()
        finally:
            used_s = time.process_time() - cpu
            gc.enable()
            gc.unfreeze()
        # Before the checks: what a server sends meanwhile would stay unread, and the end of the connection be a reset.
        for connection in self._there():
            connection.close()
        while self._unchecked:
            self._check_some()
        return Record(
            moments,
            np.array(self._sent) - start,
            np.array(self._answered) - start,
            np.array(self._outcome, np.int32),
            tuple(self._words),
            used_s,
            self._ended,
        )

    # -- the loop

    def _loop(self) -> None:
        next_at, count, due = 0, len(self._due), self._due
        while True:
            now = time.monotonic()
            while next_at < count and due[next_at] <= now:
                self._begin(next_at, now)
                next_at += 1
            self._flush()
            self._count_late(next_at)
            if next_at < count and (self._ended or self._interrupted()):
                self._ended = self._ended or INTERRUPTED
                count = next_at
            if next_at >= count and not (self._under_way or any(self._backlogs)):
                return
            wait_s = due[next_at] - time.monotonic() if next_at < count else _LATEST_S
            if self._unchecked and (
                (wait_s > 0 and not self._under_way) or self._unchecked_bytes > _UNCHECKED_BYTES
            ):
                self._check_some()
                wait_s = 0.0
            self._read(min(max(wait_s, 0.0), _LATEST_S))
            self._send_backlogs()
            self._expire()

    def _begin(self, index: int, now: float) -> None:
        """Send a request whose moment has come, after those that wait for the same server."""
        self._sent[index] = now
        at = index % len(self._connections)
        connection = self._connections[at] or self._connected(at, now)
        if connection is None:
            self._fail(index, f"ServerUnavailable: {self._addresses[at]}: not there")
        elif self._backlogs[at] or self._full(connection):
            self._backlogs[at].append(index)
        else:
            self._open(index, connection)

    def _full(self, connection: PolledConnection) -> bool:
        most = _MOST_UNDER_WAY if self._most is None else min(self._most, _MOST_UNDER_WAY)
        return connection.full() or connection.under_way >= most

    def _open(self, index: int, connection: PolledConnection) -> None:
        if self._most is not None:
            self._sent[index] = time.monotonic()
        body = self._requests[self._choice[index]].body
        left = self._deadline(index) - time.monotonic()
        try:
            call = connection.begin(_METHOD, body, max(left, 0.001))
        except ServerUnavailable as error:
            self._fail(index, _words(error))
        else:
            self._under_way[call] = index, connection

    def _deadline(self, index: int) -> float:
        """When a request has failed. In a closed loop its time begins when it is sent."""
        began = self._due[index] if self._most is None else self._sent[index]
        return began + self._timeout_s

    def _there(self) -> list[PolledConnection]:
        return [*filter(None, self._connections), *self._leaving]

    def _flush(self) -> None:
        for connection in self._there():
            connection.flush()

    def _read(self, seconds: float) -> None:
        """Wait for answers at most so long, and note when they came."""
        there = self._there()
        blocked = [each for each in there if each.blocked]
        if not there:
            time.sleep(seconds)
            return
        # Microseconds: `poll` and `epoll` of Python's standard library know milliseconds alone.
        readable, _, _ = select.select(there, blocked, (), seconds)
        for connection in readable:
            ended = connection.read()
            now = time.monotonic()
            for call in ended:
                self._end(call, connection, now)
            if connection.leaving:
                self._leave(connection, now)

    def _send_backlogs(self) -> None:
        """Send what waited for room, to each server for itself."""
        for at, backlog in enumerate(self._backlogs):
            while backlog:
                now = time.monotonic()
                if self._most is None and self._deadline(backlog[0]) <= now:
                    self._fail(backlog.popleft(), self._too_late, now)
                    continue
                connection = self._connections[at] or self._connected(at, now)
                if connection is not None and self._full(connection):
                    break
                index = backlog.popleft()
                if connection is None:
                    self._fail(index, f"ServerUnavailable: {self._addresses[at]}: not there")
                else:
                    self._open(index, connection)

    # -- ends

    def _end(self, call: Call, connection: PolledConnection, now: float) -> None:
        index, _ = self._under_way.pop(call, (None, None))
        if index is None:
            return
        if call.refused:  # the server surely did nothing for it
            self._backlogs[index % len(self._backlogs)].append(index)
            return
        answer = answer_of(call)
        if answer is None:
            body = self._requests[self._choice[index]].body
            error = connection.error(call, _METHOD, body, self._timeout_s)
            self._fail(index, _words(error), now)
            return
        self._answered[index] = now
        self._unchecked.append((index, answer))
        self._unchecked_bytes += answer.nbytes + _ANSWER_BYTES

    def _fail(self, index: int, words: str, now: float | None = None) -> None:
        self._answered[index] = time.monotonic() if now is None else now
        self._outcome[index] = self._words.setdefault(words, len(self._words)) + 1
        late_at = self._due[index] + self._stop.late_ms / 1e3
        if self._answered[index] <= late_at and self._due[index] >= self._count_from:
            self._late += 1

    def _count_late(self, sent: int) -> None:
        """End the run where too many of the first `sent` requests have waited for too long."""
        most = self._stop.most_late
        if most is None:
            return
        late_s = self._stop.late_ms / 1e3
        now = time.monotonic()
        while self._looked_at < sent and (late_at := self._due[self._looked_at] + late_s) < now:
            index = self._looked_at
            self._looked_at += 1
            # A failure in time was counted when it came; no answer yet compares with nothing.
            if not self._answered[index] <= late_at and self._due[index] >= self._count_from:
                self._late += 1
        if self._late > most:
            self._ended = self._ended or MISSED

    def _check_some(self) -> None:
        """Check answers that have come."""
        checked = 0
        while checked < _CHECKED_AT_ONCE and self._unchecked:
            index, answer = self._unchecked.popleft()
            self._unchecked_bytes -= answer.nbytes + _ANSWER_BYTES
            checked += self._requests[self._choice[index]].items
            try:
                wrong = self._requests[self._choice[index]].check(decode(answer).outputs)
            except InferenceError as error:
                wrong = _words(error)
            except Exception as error:  # a check of the user's own
                wrong = f"the check failed: {type(error).__name__}: {error}"
            if wrong:
                self._outcome[index] = self._words.setdefault(wrong, len(self._words)) + 1
            else:
                self._outcome[index] = 0

    def _expire(self) -> None:
        """Fail requests whose time is up: the oldest come first."""
        now = time.monotonic()
        while self._under_way:
            call, (index, connection) = next(iter(self._under_way.items()))
            if self._deadline(index) > now:
                break
            del self._under_way[call]
            self._fail(index, self._too_late, now)
            connection.cancel(call)
        for connection in self._there():
            connection.reset_cancelled()

    # -- a server that is not there

    def _leave(self, connection: PolledConnection, now: float) -> None:
        """Take a connection that the server closes, or has lost, out of use once its calls have ended."""
        if connection in self._connections:
            at = self._connections.index(connection)
            self._connections[at] = None
            self._retry_at[at] = now
            self._leaving.append(connection)
        if connection.lost or not connection.under_way:
            self._leaving.remove(connection)
            connection.close()

    def _connected(self, at: int, now: float) -> PolledConnection | None:
        """A new connection, tried now and then; the run ends where no server is there for long."""
        if now < self._retry_at[at]:
            return None
        try:
            made = PolledConnection(self._addresses[at], now + _AGAIN_S)
        except ServerUnavailable as error:
            self._retry_at[at] = time.monotonic() + _AGAIN_S
            self._gone_since = self._gone_since or now
            if now - self._gone_since > _GONE_S and not any(self._connections):
                self._ended = self._ended or f"{error.where}: {error.found}"
            return None
        self._gone_since = None
        self._connections[at] = made
        return made


def _words(error: ClientError) -> str:
    return f"{type(error).__name__}: {error.where}: {error.found}"
