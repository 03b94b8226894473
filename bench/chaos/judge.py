"""The fault that explains a failed call, by its door, its cause and its time; and calls that nothing explains."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from bench.chaos.callers import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.chaos.callers import Call
    from bench.chaos.faults import Fault

__all__ = ["MARGIN_S", "Explained", "explain", "per_second", "steady_s"]

MARGIN_S = 5.0
"""Margin after a part's recovery: the gateway's next health check, and a client's circuit, open for 2 s, on a busy
machine."""
Span: TypeAlias = tuple[float, float]
"""Begin and end, in seconds since the start of the load."""
_DOOR = frozenset({"connection lost", "unavailable", "circuit open", "deadline"})
"""Causes of failures while the gateway is down; the first means that no answer came at all."""
_BEHIND = frozenset({"unavailable", "lost by the gateway", "stopping", "deadline"})
"""Causes of failures while something behind the gateway is down."""
_REPLICA = frozenset({"tritonserver", "stub"})
EXPLAINS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "gateway": {"grpc": _DOOR, "stream": _DOOR, "rest": _DOOR},
    # A call over REST is sent once, and a stream that was opened is not repeated.
    "tritonserver": {"stream": _BEHIND, "rest": _BEHIND},
    "stub": {
        "stream": _BEHIND | {"model away", "error"},
        # Triton's messages about a dead process, and about a model that is being reloaded.
        "rest": _BEHIND | {"HTTP 404", "HTTP 500"},
    },
    "rest": {"rest": _BEHIND},
    # Calls do not depend on these: none may fail when one of them dies.
    "limiter": {},
    "redis": {},
    "prometheus": {},
}
"""Causes of failures that are allowed, by the part that was hit, or whose supervisor was, and by door."""
STILL = "no part: the machine stood still"
SILENT = "no part: a replica did not answer a ping in time"
BOTH = _BEHIND | {"model away", "overloaded", "circuit open"}
"""Errors with which calls of tritonkit's client may end while more than one replica is hit."""


@dataclass(frozen=True)
class Explained:
    """Failed calls by the part, the door and the cause, and those that no fault explains."""

    by: Mapping[tuple[str, str, str], Sequence[Call]]
    unexplained: Sequence[Call]


def explain(
    calls: Sequence[Call], faults: Sequence[Fault], pings: Sequence[Span] = (), still: Sequence[Span] = ()
) -> Explained:
    """Look for a fault for each failed call.

    Args:
        pings: when a replica left a ping of the gateway unanswered, as one on a busy machine does without a fault.
        still: when the whole machine stood still.
    """
    by: defaultdict[tuple[str, str, str], list[Call]] = defaultdict(list)
    unexplained = []
    for call in calls:
        if not call.cause:
            continue
        part = _part(call, [fault for fault in faults if _meets(call, fault)])
        if part is None and any(_stood(call, *span) for span in still):
            part = STILL
        if part is None and any(_silent(call, *span) for span in pings):
            part = SILENT
        if part is None:
            unexplained.append(call)
        else:
            by[part, call.door, call.cause].append(call)
    return Explained(by, unexplained)


def _stood(call: Call, from_s: float, to_s: float) -> bool:
    """Whether the machine stood still during a call or just before it."""
    meets = call.began_s <= to_s + MARGIN_S and call.ended_s >= from_s
    return meets and call.cause in _DOOR | _BEHIND


def _silent(call: Call, from_s: float, to_s: float) -> bool:
    """Whether the gateway closed a connection to a replica during a call that is sent only once."""
    meets = call.began_s <= to_s and call.ended_s >= from_s
    return meets and call.door != "grpc" and call.cause in _BEHIND


def _meets(call: Call, fault: Fault) -> bool:
    """Whether a call was in flight between a fault and the part's recovery, with the margin."""
    end_s = math.inf if fault.recovered_s is None else fault.at_s + fault.recovered_s + MARGIN_S
    return call.began_s <= end_s and call.ended_s >= fault.at_s


def _part(call: Call, faults: Sequence[Fault]) -> str | None:
    """The part that explains a failure: the one that was hit last, or both replicas together."""
    for fault in reversed(faults):
        kind = fault.member.kind
        if call.cause in EXPLAINS[kind].get(call.door, frozenset()):
            return kind
    replicas = {fault.member.replica for fault in faults if fault.member.kind in _REPLICA}
    return "both replicas" if len(replicas) > 1 and call.cause in BOTH else None


def steady_s(calls: Sequence[Call], fault: Fault) -> float | None:
    """Seconds from a fault until a whole second began in which calls ended and none of them failed."""
    ended = sorted((call.ended_s, bool(call.cause)) for call in calls if call.ended_s >= fault.at_s)
    failures = [at for at, failed in ended if failed and at <= fault.at_s + TIMEOUT_S + 60]
    since = fault.at_s
    for at in [*failures, math.inf]:
        if at - since >= 1.0:
            return since - fault.at_s if any(since <= when <= since + 1.0 for when, _ in ended) else None
        since = at
    return None


def per_second(calls: Sequence[Call]) -> tuple[list[int], list[int]]:
    """Right answers and all other ends in each second of the load."""
    length = 1 + max((int(call.ended_s) for call in calls), default=0)
    right, other = [0] * length, [0] * length
    for call in calls:
        counted = right if call.right and not call.cause else other
        counted[int(call.ended_s)] += 1
    return right, other
