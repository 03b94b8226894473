"""One server: its calls under way, its latency, and whether it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

from tritonkit.client.policy.breaker import CircuitBreaker
from tritonkit.errors import DeadlineExceeded, InferenceError, ModelNotFound, Overloaded, ServerUnavailable

__all__ = ["Attempt", "Replica"]

_WEIGHT = 0.2  # of the newest answer in the moving average
_STALE_S = 10.0  # older measurements count little
_PAUSE_S = (0.1, 2.0)  # first and longest pause of a server that does not answer; doubled at each failure
_RENEW_S = 0.5  # between two connections that are left because the server seems to end
_FULL_S = 0.05  # pause of a server that said it has no room
_NOT_COUNTED = -1  # no breaker's generation: the attempt's end says nothing more to it


@dataclass(slots=True, eq=False, repr=False)
class Replica:
    """One server and its transport."""

    address: str
    transport: Any
    breaker: CircuitBreaker
    lock: Lock  # the pool's, shared by its replicas; code that changes a replica holds it
    in_flight: int = 0
    latency_s: float = 0.0  # a moving average of its answers; 0 before the first
    measured_at: float = -math.inf
    answered_at: float = -math.inf
    rest_until: float = 0.0  # others are preferred until then; 0: nothing speaks against it
    pause_s: float = 0.0
    renewed_at: float = -math.inf

    def __repr__(self) -> str:
        return f"<Replica {self.address}: {self.breaker.state}, {self.in_flight} in flight>"

    def begin(self, now: float) -> Attempt:
        """Note that a call is sent to it."""
        self.in_flight += 1
        if self.rest_until:  # one call finds out whether it is back, the others still go elsewhere
            self.rest_until = now + self.pause_s
        breaker = self.breaker
        closed = breaker.state == "closed"
        return Attempt(self, breaker.generation if closed else breaker.enter(now), now)

    def renew(self, now: float) -> None:
        """Let calls take a new connection, at most every half a second: behind a virtual address it may
        lead to another server."""
        if now - self.renewed_at >= _RENEW_S:
            self.renewed_at = now
            self.transport.renew()

    def aged_latency_s(self, now: float, least: float) -> float:
        """Its latency, which shrinks towards `least` as it ages, so that the server is tried again."""
        if self.latency_s <= least:
            return self.latency_s
        return max(self.latency_s * math.exp((self.measured_at - now) / _STALE_S), least)

    def measure(self, seconds: float, now: float) -> None:
        """Note the seconds an answer took, or (for a cancelled call) at least would have taken."""
        age = (now - self.measured_at) / _STALE_S
        weight = 1.0 if age > 1 else age if age > _WEIGHT else _WEIGHT
        self.latency_s += weight * (seconds - self.latency_s)
        self.measured_at = now

    def rest(self, now: float, seconds: float) -> None:
        """Prefer other servers for this many seconds."""
        self.pause_s = seconds
        self.rest_until = now + seconds


@dataclass(slots=True, eq=False)
class Attempt:
    """A message at one server, or a stream or a sequence that holds it: in flight there until `end`.

    The length of a stream and its reader's own time limit say nothing about the server; the end of a
    `hold` says nothing at all.
    """

    replica: Replica
    generation: int  # the breaker's, at the start
    started: float
    kind: Literal["message", "stream", "hold"] = "message"

    def end(self, now: float, error: BaseException | None = None) -> None:
        """End the attempt with an answer (None) or this error."""
        replica = self.replica
        with replica.lock:
            replica.in_flight -= 1
            if self.kind == "hold":
                return
            if error is not None:
                self._leave(now, self._judged(now, error))
                return
            if self.kind == "message":
                replica.measure(now - self.started, now)
            self._leave(now, True)

    def outrun(self, now: float) -> None:
        """End the attempt because another server was faster."""
        replica, took_s = self.replica, now - self.started
        with replica.lock:
            replica.in_flight -= 1
            if took_s > replica.latency_s:
                replica.measure(took_s, now)
            self._leave(now, None)

    def answered(self, now: float) -> None:
        """Note a stream's first message: as a probe the stream has succeeded, however long it goes on."""
        breaker = self.replica.breaker
        with self.replica.lock:
            if self.generation == breaker.generation and breaker.state != "closed":
                self._leave(now, True)
                self.generation = _NOT_COUNTED

    def only_hold(self, now: float) -> None:
        """Count the attempt only as in flight: its own calls will show the server's state."""
        with self.replica.lock:
            self._leave(now, None)
            self.kind = "hold"

    def _leave(self, now: float, good: bool | None) -> None:
        replica = self.replica
        if good:
            replica.answered_at = now
            replica.rest_until = replica.pause_s = 0.0
        replica.breaker.leave(self.generation, now, good, self.started)

    def _judged(self, now: float, error: BaseException) -> bool | None:
        """The meaning of an error for the breaker: answered, failed or (None) neither."""
        replica = self.replica
        if isinstance(error, Overloaded):
            replica.rest(now, _FULL_S)
            return None
        if isinstance(error, ServerUnavailable | ModelNotFound):
            # Refusals are fast: without a pause, a server without its models would attract all calls.
            replica.rest(now, min(max(_PAUSE_S[0], 2 * replica.pause_s), _PAUSE_S[1]))
            return False if isinstance(error, ServerUnavailable) else None
        if isinstance(error, DeadlineExceeded) and self.kind == "message":
            replica.measure(now - self.started, now)
            # Others were answered meanwhile: the server is well, this call had too little time.
            return None if replica.answered_at >= self.started else False
        # Else it was refused before sending, interrupted, cancelled.
        return True if isinstance(error, InferenceError) else None
