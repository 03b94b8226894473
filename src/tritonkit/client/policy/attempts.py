"""The attempts of one call: the choice of a server, its answer or error, and whether to try again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from tritonkit.client.policy.hedge import HedgedSend, LatencyTracker
from tritonkit.client.policy.replica import Attempt, Replica
from tritonkit.client.steps import Send, Sleep, Steps
from tritonkit.client.wire.transport import Body, Headers, Method
from tritonkit.errors import (
    CircuitOpen,
    ClientError,
    DeadlineExceeded,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    ServerStopping,
    ServerUnavailable,
)

if TYPE_CHECKING:
    from tritonkit.client.policy.policy import Policy

__all__ = ["Attempts", "MakeBody", "Sent"]

MakeBody: TypeAlias = Callable[[Any, float], Steps[Body]]
"""`make(transport, timeout_s)`: the message for one server, if it differs between servers."""


class Sent(NamedTuple):
    """An answer, with its server, attempts and times.

    Attributes:
        body: the response message.
        endpoint: the address that answered.
        attempts: messages sent for it, retries and hedges included.
        queue_s: seconds waited for a place among the concurrent calls.
        wait_s: seconds spent in transports, summed over all attempts.
    """

    body: memoryview
    endpoint: str
    attempts: int
    queue_s: float
    wait_s: float


@dataclass(slots=True, eq=False)
class Attempts:
    """The work for one call; see `Policy.call` for its arguments."""

    policy: Policy
    method: Method
    body: Body | MakeBody
    deadline: float
    where: str
    headers: Headers = ()
    idempotent: bool = False
    only: Replica | None = None
    tried: tuple[Replica, ...] = ()  # the servers tried, the latest last
    last: Exception | None = None  # the error of the attempt before
    hedge: Attempt | None = None
    sent: int = 0  # messages, hedges included
    paid: bool = False  # for another message because of a silent server
    wait_s: float = 0.0  # seconds that failed attempts took

    def run(self, queue_s: float = 0.0) -> Steps[Sent]:
        """Make attempts until one is answered or no more are allowed."""
        policy = self.policy
        clock, latencies = policy.clock, policy.latencies
        while True:
            winner = attempt = self.pick(clock())
            self.sent += 1
            try:
                if callable(self.body):
                    body = yield from self._made_and_sent(attempt, self.body)
                elif latencies and (slow_after_s := self._slow_after_s(latencies)) is not None:
                    winner, body = yield from self._hedged(attempt, self.body, slow_after_s)
                else:
                    body = yield self._message(attempt, self.body)
            except Exception as error:
                pause_s = self._failed(attempt, clock(), error)
            except BaseException as error:  # interrupted, cancelled: says nothing about the server
                self._end(attempt, clock(), error)
                raise
            else:
                now = clock()
                winner.end(now)
                took_s = now - attempt.started
                if not self.tried and self.method == "ModelInfer":
                    policy.budget.earn(now)
                    policy.answered.add(self.where)
                    if latencies is not None:
                        latencies.add(self.where, took_s)
                endpoint = winner.replica.address
                return Sent(body, endpoint, self.sent, queue_s, self.wait_s + took_s)
            policy.refresh_names()  # of a server that was lost
            if pause_s > 0:
                yield Sleep(pause_s)

    def pick(self, now: float) -> Attempt:
        """A server to send to; raises the call's final error if there is none or no time."""
        if now >= self.deadline:
            raise self.last or self._late()
        return self.policy.pool.pick(now, self.tried, self.only) or self._no_server(now)

    def _message(self, attempt: Attempt, body: Body) -> Send:
        replica, timeout_s = attempt.replica, self.deadline - attempt.started
        alone = self.only is not None or len(self.policy.pool.replicas) < 2
        elsewhere = None if alone else partial(self._goes_elsewhere, replica)
        return Send(replica.transport, self.method, body, timeout_s, self.headers, elsewhere)

    def _goes_elsewhere(self, replica: Replica, begun: bool) -> bool:
        """Whether another server takes the call over from a silent one; pays for it if the call was begun."""
        policy, now = self.policy, self.policy.clock()
        if not self._may_send() or not policy.pool.has_other(now, (*self.tried, replica)):
            return False
        if not begun:
            return policy.budget.tokens >= 1
        self.paid = self.idempotent and policy.budget.spend(now)
        return self.paid

    def _made_and_sent(self, attempt: Attempt, make: MakeBody) -> Steps[memoryview]:
        body = yield from make(attempt.replica.transport, self.deadline - attempt.started)
        timeout_s = self.deadline - self.policy.clock()
        if timeout_s <= 0:
            raise self._late()
        answer: memoryview = yield self._message(attempt, body)._replace(timeout_s=timeout_s)
        return answer

    def _slow_after_s(self, latencies: LatencyTracker) -> float | None:
        """The moment for asking a second server; None: never."""
        if self.tried or self.only is not None or not self.idempotent:
            return None
        if self.method != "ModelInfer" or len(self.policy.pool.replicas) < 2:
            return None
        return latencies.slow_after_s(self.where) if self._may_send() else None

    def _hedged(self, attempt: Attempt, body: Body, slow_after_s: float) -> Steps[tuple[Attempt, memoryview]]:
        """The answered attempt, which continues, and its answer; the other attempt is ended."""
        policy, first = self.policy, (attempt.replica,)

        def second() -> Send | None:
            now = policy.clock()
            if now < self.deadline and policy.may_use_other(now, first):
                self.hedge = policy.pool.pick_other(now, first)
            if self.hedge is None:
                return None
            self.sent += 1
            return self._message(self.hedge, body)._replace(elsewhere=None)

        step = HedgedSend(self._message(attempt, body), slow_after_s, second, policy.helpers)
        try:
            answer: memoryview = yield step
        except BaseException as error:
            if self.hedge is not None:
                self.hedge.end(policy.clock(), step.second_error or error)
            raise
        if self.hedge is None:
            return attempt, answer
        won, lost = (self.hedge, attempt) if step.second_won else (attempt, self.hedge)
        if step.second_error is None:
            lost.outrun(policy.clock())
        else:
            lost.end(policy.clock(), step.second_error)
        return won, answer

    def _end(self, attempt: Attempt, now: float, error: BaseException) -> None:
        attempt.end(now, error)
        self.wait_s += now - attempt.started
        self.tried += (attempt.replica,)
        if self.hedge is not None:
            self.tried += (self.hedge.replica,)

    def _failed(self, attempt: Attempt, now: float, error: Exception) -> float:
        """Seconds until the next attempt; raises the error if there is none."""
        self._end(attempt, now, error)
        policy = self.policy
        elsewhere = self.only is None and policy.pool.has_other(now, self.tried)
        # For a model that has answered, the server is about to end, or loads the model again.
        left = isinstance(error, ModelNotReady) and self.where in policy.answered
        if left or isinstance(error, ServerStopping):
            attempt.replica.renew(now)
        if left or isinstance(error, ServerUnavailable):
            for resolver in policy.resolvers:
                resolver.hurry(now)
        # A server that has just started reports this for models it is still loading: another may have it.
        elif not isinstance(error, Overloaded) and not (elsewhere and isinstance(error, ModelNotFound)):
            raise error
        # A request that the server may have begun would be done twice.
        harmless = self.idempotent or (isinstance(error, ClientError) and error.unprocessed)
        if not harmless or not self._may_send():
            raise error
        # Another server takes over immediately, unless servers are full.
        pause_s = 0.0 if elsewhere and not isinstance(error, Overloaded) else self._pause_s()
        # The budget bounds servers' work: a server that did not begin had none.
        unbegun = isinstance(error, ClientError) and error.unprocessed
        free = self.paid or (elsewhere and unbegun and not isinstance(error, Overloaded))
        if now + pause_s >= self.deadline or not (free or policy.budget.spend(now)):
            raise error
        self.paid = False
        self.last = error
        return pause_s

    def _may_send(self) -> bool:
        """Whether the settings allow another message."""
        return self.sent < self.policy.retry.attempts

    def _pause_s(self) -> float:
        """A pause drawn from a range that doubles with each attempt ("full jitter")."""
        retry = self.policy.retry
        longest = min(retry.longest_s, retry.first_s * 2.0 ** min(len(self.tried) - 1, 30))
        return self.policy.rng.random() * longest

    def _late(self) -> DeadlineExceeded:
        return DeadlineExceeded(
            self.where,
            found="nothing left of the time allowed before the request was sent",
            todo="allow more time with timeout_s",
            unprocessed=True,
        )

    def _no_server(self, now: float) -> NoReturn:
        if self.last is not None:
            raise self.last
        seconds = self.policy.pool.reopens_in(now, self.only)
        names = self.policy.addresses if self.only is None else (self.only.address,)
        moment = f"within {seconds:.2g} s" if seconds > 0 else "immediately"
        raise CircuitOpen(
            self.where,
            found=f"nothing was sent: {', '.join(names)} failed too often lately",
            wanted=f"a server that answers; it is tried again {moment}",
            todo="see why it fails (is it up, is it slower than timeout_s?), and try again then",
            unprocessed=True,
        )
