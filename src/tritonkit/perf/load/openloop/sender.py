"""Sends requests at given moments, independent of the server, and notes when answers come.

One thread and no tasks: a timer of an event loop is a millisecond late, and a task for each request costs as much as
the request. Answers are checked while no request is in flight, because a request's own answer would wait for the
check. A sequence arrives like a request; its next call is sent when the one before is answered.
"""

from __future__ import annotations

import gc
import select
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tritonkit.client.wire.answer import stream_response
from tritonkit.client.wire.http2 import Call, PolledConnection, answer_of
from tritonkit.client.wire.status import STREAM as STREAM_METHOD
from tritonkit.client.wire.status import in_stream
from tritonkit.errors import ServerUnavailable
from tritonkit.perf.load.kinds import CALL, SEQUENCE, STREAM
from tritonkit.perf.load.openloop.arrivals import Moments
from tritonkit.perf.load.openloop.checks import Checks, words_of
from tritonkit.perf.load.openloop.in_flight import PARTING, InFlight
from tritonkit.perf.load.openloop.record import INTERRUPTED, MISSED, LoadRequest, Record, Stop
from tritonkit.perf.load.openloop.servers import Servers

__all__ = ["INTERRUPTED", "MISSED", "LoadRequest", "Record", "Sender", "Stop"]

_MOST_UNDER_WAY: Final = 16_000
"""Calls on a connection: beyond that, requests wait here, late, because a server's guard ends connections with more."""
_LATEST_S: Final = 0.1
"""The longest sleep of the loop, because of deadlines."""
_PARTING_S: Final = 1.0
"""The longest time that the end of an abandoned sequence may take."""
_METHOD: Final = "ModelInfer"
_ERROR_TAG: Final = 0x0A
"""The first byte of a stream's message if it is an error: the tag of its text."""
_ONE_REQUEST: Final = (("x-tritonkit-requests", "1"),)
"""Metadata that lets a gateway buffer the whole request to find out its model."""
_NO_STATE: Final = ("ServerUnavailable: ", "ServerStopping: ")
"""Failures after which the server keeps no sequence."""


class Sender:
    """Sends one run's requests.

    Args:
        addresses: the servers' addresses; servers get requests in turns.
        requests: the requests that may be sent.
        timeout_s: seconds after which a request has failed.
        stop: see `Stop`.
        interrupted: the function called now and then to learn whether to stop sending.
        most: the most requests in flight at each server, as from this number of callers who each wait for their answer.
            The next request counts as sent when there is room for it. None: all that are due.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        requests: Sequence[LoadRequest],
        timeout_s: float,
        stop: Stop,
        interrupted: Callable[[], bool],
        most: int | None = None,
    ) -> None:
        self._requests, self._timeout_s, self._stop = requests, timeout_s, stop
        self._most = most
        self._too_late = f"DeadlineExceeded: no answer within {timeout_s:g} s"
        self._interrupted = interrupted
        self._servers = Servers(addresses)
        self._under_way: dict[Call, tuple[int, PolledConnection]] = {}
        """The request of each call, in the order in which they began."""
        self._backlogs: list[deque[int]] = [deque() for _ in addresses]
        """Requests whose server takes no more concurrent calls."""
        self._checks = Checks(self._judge)
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
        self._progress = InFlight(self._requests, count)
        gc.collect()
        gc.freeze()
        gc.disable()
        cpu = time.process_time()
        try:
            self._loop(count)
        finally:
            used_s = time.process_time() - cpu
            gc.enable()
            gc.unfreeze()
        # Before the checks: otherwise the server's data would stay unread, and closing the connection would reset it.
        self._servers.close()
        while self._checks:
            self._checks.some()
        kept = self._progress.counted()
        intended = np.array(self._due) - start
        intended[:count] = moments
        return Record(
            intended[kept],
            (np.array(self._sent) - start)[kept],
            (np.array(self._answered) - start)[kept],
            np.array(self._outcome, np.int32)[kept],
            tuple(self._words),
            used_s,
            self._ended,
            self._progress.pieces(start),
        )

    # -- the loop

    def _loop(self, count: int) -> None:
        next_at, due = 0, self._due
        while True:
            now = time.monotonic()
            while next_at < count and due[next_at] <= now:
                self._begin(next_at, now)
                next_at += 1
            self._flush()
            self._count_late(next_at)
            self._ended = self._ended or self._servers.gone
            if (next_at < count or self._progress.has_pieces) and self._interrupted():
                self._ended = self._ended or INTERRUPTED
            if self._ended:
                count = next_at
            if self._ended == INTERRUPTED:
                self._leave_streams()
            if next_at >= count and not (self._under_way or any(self._backlogs) or self._is_left()):
                return
            wait_s = due[next_at] - time.monotonic() if next_at < count else _LATEST_S
            if self._checks and ((wait_s > 0 and not self._under_way) or self._checks.are_many):
                self._checks.some()
                wait_s = 0.0
            self._read(min(max(wait_s, 0.0), _LATEST_S))
            self._send_backlogs()
            self._expire()

    def _begin(self, index: int, now: float) -> None:
        """Send a request whose moment has come, after others that wait for the same server."""
        self._sent[index] = now
        at = self._place(index)
        connection = self._servers.connection(at, now)
        if connection is None:
            self._fail(index, self._servers.not_there(at))
        elif self._backlogs[at] or self._full(connection):
            self._backlogs[at].append(index)
        else:
            self._open(index, connection)

    def _place(self, index: int) -> int:
        """The server of a request: all calls of a sequence go to the same one."""
        return self._progress.of[index] % len(self._servers)

    def _request(self, index: int) -> LoadRequest:
        return self._requests[self._choice[index]]

    def _full(self, connection: PolledConnection) -> bool:
        most = _MOST_UNDER_WAY if self._most is None else min(self._most, _MOST_UNDER_WAY)
        return connection.full() or connection.under_way >= most

    def _open(self, index: int, connection: PolledConnection) -> None:
        request = self._request(index)
        if self._ended == INTERRUPTED and request.kind != CALL and not self._may_end(index):
            return
        if self._most is not None:
            self._sent[index] = time.monotonic()
        left_s = max(self._deadline(index) - time.monotonic(), 0.001)
        try:
            if request.kind == STREAM:
                call = connection.stream(request.body, left_s, _ONE_REQUEST)
            elif request.kind == SEQUENCE:
                named = self._progress.named(index, request.calls)
                call = connection.begin(_METHOD, (*request.body, named), left_s)
            else:
                call = connection.begin(_METHOD, request.body, left_s)
        except ServerUnavailable as error:
            self._fail(index, words_of(error))
        else:
            self._under_way[call] = index, connection

    def _deadline(self, index: int) -> float:
        """The moment at which a request has failed. In a closed loop its time begins when it is sent."""
        began = self._due[index] if self._most is None else self._sent[index]
        return began + (_PARTING_S if self._is_parting(index) else self._timeout_s)

    def _flush(self) -> None:
        for connection in self._servers.there():
            connection.flush()

    def _read(self, seconds: float) -> None:
        """Wait for answers for at most this time, and note when they came."""
        there = self._servers.there()
        blocked = [connection for connection in there if connection.blocked]
        if not there:
            time.sleep(seconds)
            return
        # Microseconds: `poll` and `epoll` of Python's standard library only have milliseconds.
        readable, _, _ = select.select(there, blocked, (), seconds)
        for connection in readable:
            ended = connection.read()
            now = time.monotonic()
            for call in ended:
                self._end(call, connection, now)
            if connection.leaving:
                self._servers.leave(connection, now)

    def _send_backlogs(self) -> None:
        """Send requests that waited for room, to each server separately."""
        for at, backlog in enumerate(self._backlogs):
            while backlog:
                now = time.monotonic()
                if self._most is None and self._deadline(backlog[0]) <= now:
                    self._fail(backlog.popleft(), self._too_late, now)
                    continue
                connection = self._servers.connection(at, now)
                if connection is not None and self._full(connection):
                    break
                index = backlog.popleft()
                if connection is None:
                    self._fail(index, self._servers.not_there(at))
                else:
                    self._open(index, connection)

    # -- ends

    def _end(self, call: Call, connection: PolledConnection, now: float) -> None:
        """Record the end of a call, or replies of a stream that goes on."""
        index, _ = self._under_way.get(call, (None, None))
        if index is None or (call.streaming and not self._is_over(index, call, connection, now)):
            return
        del self._under_way[call]
        if call.refused:  # the server surely did nothing for it
            self._backlogs[self._place(index)].append(index)
        elif call.streaming:
            self._end_stream(index, call, connection)
        elif (answer := answer_of(call)) is None:
            error = connection.error(call, _METHOD, self._request(index).body, self._timeout_s)
            self._fail(index, words_of(error), now)
        elif not self._is_parting(index):
            self._answered[index] = now
            self._checks.add(index, self._request(index), answer)
            self._follow(index, now)

    def _fail(self, index: int, words: str, now: float | None = None) -> None:
        if self._is_parting(index):
            return
        now = time.monotonic() if now is None else now
        self._answered[index] = now
        self._outcome[index] = self._code(words)
        # A late failure of a first call is counted by its moment, that of a later call here: each sequence fails once.
        is_later, late_s = self._progress.numbers[index] > 0, self._stop.late_ms / 1e3
        if self._is_counted(index) and (is_later or now <= self._due[index] + late_s):
            self._late += 1
        first_refused = not self._progress.numbers[index] and words.startswith("Overloaded: ")
        if not (first_refused or words.startswith(_NO_STATE)):
            self._follow(index, now, failed=True)

    def _code(self, words: str) -> int:
        return self._words.setdefault(words, len(self._words)) + 1

    def _judge(self, index: int, wrong: str) -> None:
        """The verdict on an answer; a failure stays one."""
        if self._outcome[index] <= 0:
            self._outcome[index] = self._code(wrong) if wrong else 0

    def _is_counted(self, index: int) -> bool:
        """Whether a request, or its sequence, arrived in the time that counts."""
        return self._due[self._progress.of[index]] >= self._count_from

    def _count_late(self, sent: int) -> None:
        """End the run if too many of the first `sent` requests have waited too long."""
        most = self._stop.most_late
        if most is None:
            return
        late_s = self._stop.late_ms / 1e3
        now = time.monotonic()
        while self._looked_at < sent and (late_at := self._due[self._looked_at] + late_s) < now:
            index = self._looked_at
            self._looked_at += 1
            # A failure in time was counted when it came; NaN, for no answer yet, compares as false.
            if not self._answered[index] <= late_at and self._is_counted(index):
                self._late += 1
        if self._late > most:
            self._ended = self._ended or MISSED

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
        for connection in self._servers.there():
            connection.reset_cancelled()

    # -- sequences and streams

    def _is_parting(self, index: int) -> bool:
        return self._progress.numbers[index] == PARTING

    def _may_end(self, index: int) -> bool:
        """Whether a waiting request is still sent after an interrupt: only to end a sequence."""
        if self._progress.numbers[index]:
            self._progress.numbers[index] = PARTING
        return self._is_parting(index)

    def _follow(self, index: int, now: float, failed: bool = False) -> None:
        """Send a sequence's next call; only its end if a call failed or the run has ended."""
        request, number = self._request(index), self._progress.numbers[index]
        if request.kind != SEQUENCE or (number == request.calls - 1 and not failed):
            return
        parts = failed or self._ended
        self._choice.append(self._choice[index] if parts else request.after)
        self._due.append(now)
        self._sent.append(np.nan)
        self._answered.append(np.nan)
        self._outcome.append(-1)
        self._begin(self._progress.follow(index, PARTING if parts else number + 1), now)

    def _is_over(self, index: int, call: Call, connection: PolledConnection, now: float) -> bool:
        """Record a stream's replies; return whether it has ended, or is given up because of an error."""
        while (message := connection.reply(call)) is not None:
            if message and message[0] == _ERROR_TAG:
                error = in_stream(stream_response(message)[0], connection.address)
                self._fail(index, words_of(error), now)
                connection.cancel(call)
                return True
            self._progress.reply(index, now)
            self._checks.add(index, self._request(index), message)
        return call.ended or call.problem != ""

    def _end_stream(self, index: int, call: Call, connection: PolledConnection) -> None:
        if not np.isnan(self._answered[index]):  # it failed
            return
        if call.status != 0 or call.problem:
            body = self._request(index).body
            error = connection.error(call, STREAM_METHOD, body, self._timeout_s)
            self._fail(index, words_of(error))
            connection.cancel(call)
        elif (last := self._progress.last(index)) is None:
            self._fail(index, f"InferenceError: {connection.address}: a stream without a reply")
        else:
            self._answered[index] = last
            self._checks.add(index, self._request(index), None)

    def _leave_streams(self) -> None:
        """Give up the streams in flight: they may last long, and are not counted."""
        for call, (_, connection) in list(self._under_way.items()):
            if call.streaming:
                del self._under_way[call]
                connection.cancel(call)

    def _is_left(self) -> bool:
        """Whether calls that were given up have not yet ended at the server."""
        return any(connection.under_way for connection in self._servers.there())
