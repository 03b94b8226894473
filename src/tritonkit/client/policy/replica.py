"""One server: what is under way to it, how quick it was, whether it answers at all."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tritonkit.client.policy.breaker import Circuit
from tritonkit.errors import (
    DeadlineExceeded,
    InferenceError,
    ModelNotFound,
    Overloaded,
    ServerUnavailable,
)

__all__ = ["Attempt", "Replica"]

_WEIGHT = 0.2
"""Of the newest answer in the moving average."""

_STALE_S = 10.0
"""What was measured longer ago than this counts little."""

_TOLD = -2
"""Of a stream whose circuit has been told of its answer: no circuit's era."""

_PAUSE_S = (0.1, 2.0)
"""First and longest pause of a server that does not answer; doubled at each failure in a row."""

_FULL_S = 0.05
"""Pause of a server that said it has no room."""


class Replica:
    """One server and its transport; only the pool touches it, under the pool's lock."""

    __slots__ = (
        "_answered_at",
        "_pause_s",
        "address",
        "circuit",
        "in_flight",
        "latency_s",
        "measured_at",
        "rest_until",
        "transport",
    )

    def __init__(self, address: str, transport: Any, circuit: Circuit) -> None:
        self.address = address
        self.transport = transport
        self.circuit = circuit
        self.in_flight = 0
        self.latency_s = 0.0
        self.measured_at = -math.inf
        self.rest_until = 0.0
        self._answered_at = -math.inf
        self._pause_s = 0.0

    def __repr__(self) -> str:
        return f"<Replica {self.address}: {self.circuit.state}, {self.in_flight} in flight>"

    def rested(self, now: float) -> bool:
        """Whether nothing speaks against it: others are preferred while it rests after a failure."""
        return not self.rest_until or now >= self.rest_until

    def begin(self, now: float) -> Attempt:
        """A call is sent to it."""
        self.in_flight += 1
        if self.rest_until:  # one call finds out whether it is back, the others still go elsewhere
            self.rest_until = now + self._pause_s
        circuit = self.circuit
        return Attempt(self, circuit.era if circuit.state == "closed" else circuit.enter(now), now)

    def end(self, attempt: Attempt, now: float, error: BaseException | None) -> None:
        """The call is over: answered (None), or ended with this error."""
        self.in_flight -= 1
        if error is None:
            self.measured(now - attempt.started, now)
            self._answered(attempt, now)
        elif isinstance(error, Overloaded):
            self._rest(now, _FULL_S)
            self.circuit.leave(attempt.era, now, None, attempt.started)
        elif isinstance(error, ServerUnavailable | ModelNotFound):
            # Saying no is quick: without a rest a server without its models would draw all calls.
            self._rest(now, min(max(_PAUSE_S[0], 2 * self._pause_s), _PAUSE_S[1]))
            lost = isinstance(error, ServerUnavailable)
            self.circuit.leave(
                attempt.era, now, good=False if lost else None, began=attempt.started
            )
        elif isinstance(error, DeadlineExceeded):
            self.measured(now - attempt.started, now)
            # Others were answered meanwhile: the server is well, this call had too little time.
            late = self._answered_at < attempt.started
            self.circuit.leave(
                attempt.era, now, good=False if late else None, began=attempt.started
            )
        elif isinstance(error, InferenceError):
            self._answered(attempt, now)
        else:  # refused before sending, interrupted, cancelled
            self.circuit.leave(attempt.era, now, None, attempt.started)

    def released(self, attempt: Attempt, now: float, error: BaseException | None) -> None:
        """A stream is over: its length and a reader's own time limit say nothing about the server."""
        if error is None:
            self.in_flight -= 1
            self._answered(attempt, now)
        elif isinstance(error, DeadlineExceeded):
            self.in_flight -= 1
            self.circuit.leave(attempt.era, now, None, attempt.started)
        else:
            self.end(attempt, now, error)

    def answered(self, attempt: Attempt, now: float) -> Attempt:
        """A stream has brought something: as a probe it has ended well, however long it goes on."""
        if attempt.era != self.circuit.era or self.circuit.state == "closed":
            return attempt
        self._answered(attempt, now)
        return attempt._replace(era=_TOLD)

    def lost(self, attempt: Attempt, now: float) -> None:
        """The call was given up because another server was quicker."""
        self.in_flight -= 1
        if now - attempt.started > self.latency_s:
            self.measured(now - attempt.started, now)
        self.circuit.leave(attempt.era, now, None, attempt.started)

    def measured(self, seconds: float, now: float) -> None:
        """An answer took so long, or (a call given up) would have taken longer."""
        age = (now - self.measured_at) / _STALE_S
        weight = 1.0 if age > 1 else age if age > _WEIGHT else _WEIGHT
        self.latency_s += weight * (seconds - self.latency_s)
        self.measured_at = now

    def aged_latency_s(self, now: float, least: float) -> float:
        """Its latency, trusted less the older it is: it shrinks towards `least`, so it is tried again."""
        if self.latency_s <= least:
            return self.latency_s
        return max(self.latency_s * math.exp((self.measured_at - now) / _STALE_S), least)

    def _answered(self, attempt: Attempt, now: float) -> None:
        self._answered_at = now
        self.rest_until = self._pause_s = 0.0
        self.circuit.leave(attempt.era, now, good=True, began=attempt.started)

    def _rest(self, now: float, seconds: float) -> None:
        self._pause_s = seconds
        self.rest_until = now + seconds


class Attempt(NamedTuple):
    """One message sent to one server."""

    replica: Replica
    era: int
    started: float
