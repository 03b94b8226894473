"""The attempts of one call: which server, an error or an answer, and whether once more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, NoReturn, TypeAlias

from tritonkit.client.policy.alarm import Alarm
from tritonkit.client.policy.budget import Budget
from tritonkit.client.policy.hedge import Latencies, Race, Raced
from tritonkit.client.policy.pool import Pool
from tritonkit.client.policy.replica import Attempt, Replica
from tritonkit.client.policy.resolve import LookUp, Watch
from tritonkit.client.policy.settings import Retry
from tritonkit.client.steps import Send, Sleep, Steps
from tritonkit.errors import (
    CircuitOpen,
    ClientError,
    DeadlineExceeded,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
)
from tritonkit.wire.transport import Body, Headers, Method

__all__ = ["Call", "MakeBody", "Sent", "Shared"]

MakeBody: TypeAlias = Callable[[Any, float], Steps[Body]]
"""`make(transport, timeout_s)`: the message for one server, where it differs between servers."""


class Sent(NamedTuple):
    """An answer and how it came about.

    Attributes:
        body: the response message.
        endpoint: the address that answered.
        attempts: messages sent for it, retries and hedges included.
        queue_s: seconds waited for a place among the calls at once.
        wait_s: seconds spent in transports, all attempts together.
    """

    body: memoryview
    endpoint: str
    attempts: int
    queue_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class Shared:
    """What all calls of a client have in common."""

    addresses: tuple[str, ...]
    pool: Pool
    retry: Retry | None
    budget: Budget | None
    latencies: Latencies | None
    alarm: Alarm
    watches: tuple[Watch, ...]
    clock: Callable[[], float]
    rng: Random


class Call:
    """One call under way; `run` is its course."""

    __slots__ = (
        "_began",
        "_body",
        "_deadline",
        "_headers",
        "_hedge",
        "_idempotent",
        "_last",
        "_method",
        "_only",
        "_sent",
        "_shared",
        "_tried",
        "_wait_s",
        "_where",
    )

    def __init__(
        self,
        shared: Shared,
        method: Method,
        body: Body | MakeBody,
        deadline: float,
        where: str,
        headers: Headers = (),
        idempotent: bool = False,
        only: Replica | None = None,
    ) -> None:
        self._shared = shared
        self._method = method
        self._body = body
        self._deadline = deadline
        self._where = where
        self._headers = headers
        self._idempotent = idempotent
        self._only = only
        self._tried: tuple[Replica, ...] = ()
        self._last: Exception | None = None
        self._hedge: Attempt | None = None
        self._began: float | None = None
        self._sent = 0
        self._wait_s = 0.0

    def run(self, queue_s: float) -> Steps[Sent]:
        """Attempts until one is answered or no more may be made."""
        clock, hedged = self._shared.clock, self._shared.latencies is not None
        while True:
            attempt = self.picked(clock())
            self._sent += 1
            try:
                slow_after_s = self._slow_after_s() if hedged else None
                if callable(self._body):
                    body = yield from self._made_and_sent(attempt, self._body)
                elif slow_after_s is None:
                    body = yield self._message(attempt, self._body)
                else:
                    attempt, body = yield from self._raced(attempt, self._body, slow_after_s)
            except Exception as error:
                pause_s = self._failed(attempt, clock(), error)
            except BaseException as error:  # interrupted, cancelled: says nothing about the server
                self._settled(attempt, clock(), error)
                raise
            else:
                return self._answered(attempt, clock(), body, queue_s)
            yield from self._paused(pause_s)

    def picked(self, now: float) -> Attempt:
        """A server to send to; raises what the call ends with if there is none or no time."""
        if now >= self._deadline:
            raise self._last or self._late()
        attempt = self._shared.pool.pick(now, self._tried, self._only)
        return attempt if attempt is not None else self._no_server(now)

    def _paused(self, pause_s: float) -> Steps[None]:
        """Between attempts; a name whose server was lost is looked up meanwhile."""
        now = self._shared.clock()
        for watch in self._shared.watches:
            if watch.due(now):
                yield LookUp(watch, now, 0.0)
        if pause_s > 0:
            yield Sleep(pause_s)

    def _made_and_sent(self, attempt: Attempt, make: MakeBody) -> Steps[memoryview]:
        shared = self._shared
        body = yield from make(attempt.replica.transport, self._deadline - attempt.started)
        if shared.clock() >= self._deadline:
            raise self._late()
        message = self._message(attempt, body)
        answer: memoryview = yield message._replace(timeout_s=self._deadline - shared.clock())
        return answer

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(
            self._where,
            found="nothing left of the time allowed before the request was sent",
            todo="allow more time with timeout_s",
            unprocessed=True,
        )

    def _message(self, attempt: Attempt, body: Body) -> Send:
        return Send(
            attempt.replica.transport,
            self._method,
            body,
            self._deadline - attempt.started,
            self._headers,
        )

    def _slow_after_s(self) -> float | None:
        """When to ask a second server; None: not at all."""
        shared = self._shared
        if shared.latencies is None or self._tried or not self._idempotent or not self._may_send():
            return None
        if self._method != "ModelInfer" or self._only is not None or callable(self._body):
            return None
        if len(shared.pool.replicas) < 2:
            return None
        return shared.latencies.slow_after_s(self._where)

    def _raced(
        self, attempt: Attempt, body: Body, slow_after_s: float
    ) -> Steps[tuple[Attempt, memoryview]]:
        shared = self._shared
        race = Race(
            self._message(attempt, body),
            slow_after_s,
            lambda: self._second(attempt.replica, body),
            shared.alarm,
        )
        try:
            raced: Raced = yield race
        except BaseException as error:
            if self._hedge is not None:
                shared.pool.end(self._hedge, shared.clock(), race.second_error or error)
            raise
        if self._hedge is None:
            return attempt, raced.body
        now = shared.clock()
        winner, loser = (self._hedge, attempt) if raced.by_second else (attempt, self._hedge)
        if loser is self._hedge and race.second_error is not None:
            shared.pool.end(loser, now, race.second_error)
        else:
            shared.pool.lost(loser, now)
        self._began = attempt.started
        return winner, raced.body

    def _second(self, first: Replica, body: Body) -> Send | None:
        """The hedge: a message to a healthy server other than the first, if the budget allows it."""
        shared = self._shared
        now = shared.clock()
        if now >= self._deadline or not shared.pool.has_other(now, (first,)):
            return None
        if shared.budget is None or not shared.budget.spend(now):
            return None
        self._hedge = shared.pool.other(now, (first,))
        if self._hedge is None:
            return None
        self._sent += 1
        return self._message(self._hedge, body)

    def _answered(self, attempt: Attempt, now: float, body: memoryview, queue_s: float) -> Sent:
        shared = self._shared
        shared.pool.end(attempt, now)
        began = attempt.started if self._began is None else self._began
        if not self._tried and self._method == "ModelInfer":
            if shared.budget is not None:
                shared.budget.earn(now)
            if shared.latencies is not None:
                shared.latencies.add(self._where, now - began)
        return Sent(body, attempt.replica.address, self._sent, queue_s, self._wait_s + now - began)

    def _settled(self, attempt: Attempt, now: float, error: BaseException) -> None:
        self._shared.pool.end(attempt, now, error)
        self._wait_s += now - attempt.started
        self._tried += (attempt.replica,)
        if self._hedge is not None:
            self._tried += (self._hedge.replica,)

    def _failed(self, attempt: Attempt, now: float, error: Exception) -> float:
        """Seconds until the next attempt; raises the error when there is to be none."""
        self._settled(attempt, now, error)
        if isinstance(error, ServerUnavailable):
            for watch in self._shared.watches:
                watch.hurry(now)
        elif isinstance(error, ModelNotFound):
            # A server that has just started says so of models it is still loading.
            if not self._elsewhere(now):
                raise error
        elif not isinstance(error, Overloaded):
            raise error
        budget = self._shared.budget
        # What a server may have begun with would be done twice.
        harmless = self._idempotent or (isinstance(error, ClientError) and error.unprocessed)
        if budget is None or not harmless or not self._may_send():
            raise error
        pause_s = self._pause_s(now, error)
        if now + pause_s >= self._deadline or not budget.spend(now):
            raise error
        self._last = error
        return pause_s

    def _may_send(self) -> bool:
        """Whether the settings allow one message more."""
        retry = self._shared.retry
        return retry is not None and self._sent < retry.attempts

    def _pause_s(self, now: float, error: Exception) -> float:
        """None if another server can take over; else drawn from a range that doubles ("full jitter")."""
        shared = self._shared
        assert shared.retry is not None  # noqa: S101 - for mypy: there is a budget only with it
        if self._elsewhere(now) and not isinstance(error, Overloaded):
            return 0.0
        doublings = min(len(self._tried) - 1, 30)
        longest = min(shared.retry.longest_s, shared.retry.first_s * 2.0**doublings)
        return shared.rng.random() * longest

    def _elsewhere(self, now: float) -> bool:
        """Whether there is a healthy server that this call has not tried."""
        return self._only is None and self._shared.pool.has_other(now, self._tried)

    def _no_server(self, now: float) -> NoReturn:
        if self._last is not None:
            raise self._last
        seconds = self._shared.pool.reopens_in(now, self._only)
        names = self._shared.addresses if self._only is None else (self._only.address,)
        moment = f"within {seconds:.2g} s" if seconds > 0 else "at once"
        raise CircuitOpen(
            self._where,
            found=f"nothing was sent: {', '.join(names)} failed too often lately",
            wanted=f"a server that answers; it is tried again {moment}",
            todo="see why it fails (is it up, is it slower than timeout_s?), and try again then",
            unprocessed=True,
        )
