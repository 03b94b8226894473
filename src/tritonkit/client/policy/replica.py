"""One server: what is under way to it, how quick it was, whether it answers at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from tritonkit.client.policy.breaker import CircuitBreaker
from tritonkit.errors import (
    DeadlineExceeded,
    InferenceError,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
)

__all__ = ["Attempt", "Replica", "ReplicaLease"]

_WEIGHT = 0.2
"""Of the newest answer in the moving average."""

_STALE_S = 10.0
"""What was measured longer ago than this counts little."""

_PAUSE_S = (0.1, 2.0)
"""First and longest pause of a server that does not answer; doubled at each failure in a row."""

_FULL_S = 0.05
"""Pause of a server that said it has no room."""

_NOT_COUNTED = -1
"""No breaker's generation: of an attempt whose end says nothing more to the breaker."""

_SAYS_NOTHING = InterruptedError("only held")
"""How an attempt ends that says nothing about its server."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One message, or one stream, at one server."""

    replica: Replica
    generation: int
    """The breaker's, at the start."""
    started: float


@dataclass(slots=True, eq=False, repr=False)
class Replica:
    """One server and its transport."""

    address: str
    transport: Any
    breaker: CircuitBreaker
    lock: Lock
    """The pool's, shared by its replicas."""
    in_flight: int = 0
    latency_s: float = 0.0
    """A moving average of its answers; 0 before the first."""
    measured_at: float = -math.inf
    answered_at: float = -math.inf
    rest_until: float = 0.0
    """Others are preferred until then, after a failure; 0: nothing speaks against it."""
    pause_s: float = 0.0

    def __repr__(self) -> str:
        return f"<Replica {self.address}: {self.breaker.state}, {self.in_flight} in flight>"

    def begin(self, now: float) -> Attempt:
        """A call is sent to it; the caller holds the pool's lock."""
        self.in_flight += 1
        if self.rest_until:  # one call finds out whether it is back, the others still go elsewhere
            self.rest_until = now + self.pause_s
        breaker = self.breaker
        closed = breaker.state == "closed"
        return Attempt(self, breaker.generation if closed else breaker.enter(now), now)

    def end(
        self,
        attempt: Attempt,
        now: float,
        error: BaseException | None = None,
        *,
        stream: bool = False,
    ) -> None:
        """The attempt is over: answered (None), or ended with this error.

        The length of a stream and its reader's own time limit say nothing about the server.
        """
        with self.lock:
            self.in_flight -= 1
            good: bool | None = True
            if error is not None:
                good = self._judged(attempt, now, error, stream)
            elif not stream:
                self._measure(now - attempt.started, now)
            if good:
                self.answered_at = now
                self.rest_until = self.pause_s = 0.0
            self.breaker.leave(attempt.generation, now, good, attempt.started)

    def outrun(self, attempt: Attempt, now: float) -> None:
        """The attempt was given up because another server was quicker."""
        with self.lock:
            self.in_flight -= 1
            if now - attempt.started > self.latency_s:
                self._measure(now - attempt.started, now)
            self.breaker.leave(attempt.generation, now, None, attempt.started)

    def answered(self, attempt: Attempt, now: float) -> None:
        """A stream has brought something: as a probe it has ended well, however long it goes on."""
        with self.lock:
            if attempt.generation == self.breaker.generation and self.breaker.state != "closed":
                self.answered_at = now
                self.rest_until = self.pause_s = 0.0
                self.breaker.leave(attempt.generation, now, good=True, began=attempt.started)
                attempt.generation = _NOT_COUNTED

    def only_hold(self, attempt: Attempt, now: float) -> None:
        """The attempt's end will say nothing about the server."""
        with self.lock:
            self.breaker.leave(attempt.generation, now, None, attempt.started)
            attempt.generation = _NOT_COUNTED

    def aged_latency_s(self, now: float, least: float) -> float:
        """Its latency, trusted less the older it is: it shrinks towards `least`, so it is tried again."""
        if self.latency_s <= least:
            return self.latency_s
        return max(self.latency_s * math.exp((self.measured_at - now) / _STALE_S), least)

    def _judged(
        self, attempt: Attempt, now: float, error: BaseException, stream: bool
    ) -> bool | None:
        """What an error says to the breaker: answered, failed or (None) neither."""
        if isinstance(error, Overloaded):
            self._rest(now, _FULL_S)
            return None
        if isinstance(error, ServerUnavailable | ModelNotFound):
            # Saying no is quick: without a rest a server without its models would draw all calls.
            self._rest(now, min(max(_PAUSE_S[0], 2 * self.pause_s), _PAUSE_S[1]))
            return False if isinstance(error, ServerUnavailable) else None
        if isinstance(error, DeadlineExceeded) and not stream:
            self._measure(now - attempt.started, now)
            # Others were answered meanwhile: the server is well, this call had too little time.
            return None if self.answered_at >= attempt.started else False
        # Else it was refused before sending, interrupted, cancelled.
        return True if isinstance(error, InferenceError) else None

    def _measure(self, seconds: float, now: float) -> None:
        """An answer took so long, or (a call given up) would have taken longer."""
        age = (now - self.measured_at) / _STALE_S
        weight = 1.0 if age > 1 else age if age > _WEIGHT else _WEIGHT
        self.latency_s += weight * (seconds - self.latency_s)
        self.measured_at = now

    def _rest(self, now: float, seconds: float) -> None:
        self.pause_s = seconds
        self.rest_until = now + seconds


class ReplicaLease:
    """One server held for longer than a message, by a stream or a sequence, until `finish`."""

    def __init__(self, attempt: Attempt, clock: Callable[[], float]) -> None:
        self._attempt = attempt
        self._clock = clock
        self._over = self._only_holds = False
        self.replica = attempt.replica
        self.address = attempt.replica.address
        self.transport: Any = attempt.replica.transport

    def keep(self) -> None:
        """Only hold the server from now on: calls of their own will tell how it is."""
        self._only_holds = True
        self.replica.only_hold(self._attempt, self._clock())

    def answered(self) -> None:
        """The server has answered; the lease goes on."""
        self.replica.answered(self._attempt, self._clock())

    def finish(self, error: BaseException | None = None) -> None:
        """It is over, answered or with this error; finishing twice is finishing once.

        A lease's duration says nothing about how quick the server is, and is not measured.
        """
        if not self._over:
            self._over = True
            if self._only_holds:
                error = _SAYS_NOTHING
            self.replica.end(self._attempt, self._clock(), error, stream=True)
