"""A day of a fleet that is scaled by a rule, in steps of some seconds; and the value of the rule.

Within a step the fleet has the state that the request-level simulation shows for its rate (`Curve`); requests above its
capacity wait for the next steps. So a day of any rate takes a moment, while a simulation of every request would take
hours. The rules are those of Kubernetes' horizontal pod autoscaler: the target number is the present one times metric
over target, computed every 15 s from a metric that is 15 s old. Nothing changes within 10 %. The number at most
doubles (or grows by 4) at a time, and falls only to the highest number of the last five minutes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tritonkit.perf.plan.sizing import Curve
from tritonkit.perf.plan.traffic import DAY_S, STEP_S, Traffic

__all__ = ["Day", "Metric", "Minute", "ScalingRule", "Terms", "simulate_day"]

Metric: TypeAlias = Literal["none", "rate", "utilization", "queue time", "schedule"]

_SYNC_S, _METRIC_AGE_S = 15.0, 15.0
_TOLERANCE = 0.1
_MOST_UP = 4
_MOST = 2
"""The highest number of replicas, relative to the number without autoscaling."""
_STABILIZATION_S = 300.0
_FLAP_S = 900.0
"""A change back within this time is a flap: the new replica is hardly used."""
_BEHIND, _MOST_FLAPS = 0.01, 6
"""A rule with a larger share of the day behind, or more flaps a day, is not recommended."""
_EXACT = 1.1
"""The factor by which the share of late requests may exceed its limit: a simulated day is not more exact."""
_AHEAD_S = 1800.0
"""A schedule has steps of about this length."""
_MINUTE_S = 60.0


@dataclass(frozen=True)
class ScalingRule:
    """The rule by which a fleet grows and shrinks.

    Args:
        metric: `rate`: requests a second of a replica, as a share of the rate that one holds. `utilization`: the share
            of the time in which an instance runs. `queue time`: mean wait of requests, as a share of the latency
            target. `schedule`: the highest rate within half an hour and a start, known beforehand, with `target` as the
            share of a replica's rate. `none`: the number for the highest rate.
        target: the target value of the metric, 0 to 1.
    """

    metric: Metric
    target: float = 0.0

    def __str__(self) -> str:
        if self.metric == "none":
            return "no autoscaling"
        return f"{self.metric} {self.target:.0%}"


@dataclass(frozen=True)
class Terms:
    """Conditions that are the same for all rules.

    Args:
        percent, target_ms: percentile and milliseconds of the latency target.
        held_per_s: the rate at which one replica holds it.
        fixed: replicas without autoscaling, spare ones included.
        spare: paid replicas that may be down: the day is simulated without them.
        start_s: seconds from the decision until a new replica answers.
    """

    percent: float
    target_ms: float
    held_per_s: float
    fixed: int
    spare: int
    start_s: float


@dataclass(frozen=True)
class Minute:
    """A minute of the day: its rate, the replicas that answer and those needed, and the worst tail in it."""

    at_s: float
    rate_per_s: float
    ready: int
    needed: int
    tail_ms: float


@dataclass(frozen=True)
class Day:
    """A day under a rule.

    Args:
        replica_hours: paid hours, starting and spare replicas included.
        late: the share of requests over the target, 0 to 1.
        behind_s: time in which fewer replicas answered than the target needs.
        changes, flaps: changes of the number, and changes back within a quarter of an hour.
        most, least: replicas, spare ones included.
    """

    rule: ScalingRule
    replica_hours: float
    late: float
    behind_s: float
    changes: int
    flaps: int
    least: int
    most: int
    minutes: tuple[Minute, ...]

    def keeps(self, percent: float) -> bool:
        """Whether the target is kept over the whole day, with enough replicas nearly all of the time, and without
        flapping."""
        return (
            self.late <= _EXACT * (1 - percent / 100) and self.behind_s <= _BEHIND * DAY_S and self.flaps <= _MOST_FLAPS
        )


def simulate_day(rule: ScalingRule, traffic: Traffic, curve: Curve, terms: Terms) -> Day:
    """Run a day. It begins with the replicas that its first moment needs."""
    fleet = _Fleet(rule, traffic, curve, terms)
    for step in range(len(traffic.rates_per_s)):
        fleet.step(step)
    return fleet.day()


class _Fleet:
    """The fleet at a moment of the day."""

    def __init__(self, rule: ScalingRule, traffic: Traffic, curve: Curve, terms: Terms) -> None:
        self._rule, self._terms = rule, terms
        self._rates: list[float] = traffic.rates_per_s.tolist()
        self._capacity = curve.rates_per_s[-1]
        self._read = curve.reader(terms.percent, terms.target_ms)
        self._base_ms, _, _ = self._read(0.0)
        needed = self._needed(self._rates[0])
        self._ready = terms.fixed - terms.spare if rule.metric == "none" else needed
        self._starting: deque[tuple[float, int]] = deque()
        self._backlog = 0.0
        self._seen: deque[tuple[float, float]] = deque()
        """The metric's value, with its time."""
        self._wanted: deque[tuple[float, int]] = deque()
        self._changes: list[tuple[float, int]] = []
        self._late = self._paid_s = self._behind_s = 0.0
        self._least = self._most = self._ready
        self._minutes: list[Minute] = []
        self._worst_ms = 0.0

    def step(self, number: int) -> None:
        now, rate = number * STEP_S, self._rates[number]
        while self._starting and self._starting[0][0] <= now:
            self._ready += self._starting.popleft()[1]
        metric = self._serve(rate)
        self._seen.append((now, metric))
        needed = self._needed(rate)
        self._behind_s += STEP_S if self._ready < needed else 0.0
        self._paid_s += STEP_S * (self._count() + self._terms.spare)
        if now % _SYNC_S == 0 and self._rule.metric != "none":
            self._scale(now, number)
        if now % _MINUTE_S == 0:
            self._minutes.append(Minute(now, rate, self._ready, needed, self._worst_ms))
            self._worst_ms = 0.0

    def day(self) -> Day:
        total = sum(self._rates) * STEP_S
        flaps = sum(
            1
            for (before, up), (after, then) in zip(self._changes, self._changes[1:], strict=False)
            if (up > 0) != (then > 0) and after - before <= _FLAP_S
        )
        spare = self._terms.spare
        return Day(
            self._rule,
            self._paid_s / 3600 * (DAY_S / (len(self._rates) * STEP_S)),
            self._late / total if total else 0.0,
            self._behind_s,
            len(self._changes),
            flaps,
            self._least + spare,
            self._most + spare,
            tuple(self._minutes),
        )

    def _needed(self, rate: float) -> int:
        return max(1, math.ceil(rate / self._terms.held_per_s - 1e-9))

    def _count(self) -> int:
        return self._ready + sum(count for _, count in self._starting)

    def _serve(self, rate: float) -> float:
        """Run a step of requests; return the metric, summed over replicas."""
        terms = self._terms
        able = self._ready * self._capacity
        arrived = rate * STEP_S + self._backlog
        served = min(arrived, able * STEP_S)
        waited_ms = 1e3 * (arrived - served) / able
        self._backlog = arrived - served
        tail, late, busy = self._read(min(served / STEP_S / self._ready, self._capacity))
        if waited_ms > terms.target_ms:
            late = 1.0
        self._late += late * rate * STEP_S
        self._worst_ms = max(self._worst_ms, tail + waited_ms)
        if self._rule.metric == "queue time":
            return self._ready * (max(0.0, tail - self._base_ms) + waited_ms) / terms.target_ms
        return rate / terms.held_per_s if self._rule.metric == "rate" else busy * self._ready

    def _scale(self, now: float, number: int) -> None:
        count = self._count()
        target = self._wanted_count(now, number, count)
        target = max(1, min(target, max(2 * count, count + _MOST_UP), _MOST * self._terms.fixed))
        self._wanted.append((now, target))
        while self._wanted[0][0] < now - _STABILIZATION_S:
            self._wanted.popleft()
        if target < count:
            target = min(count, max(wish for _, wish in self._wanted))
        if target != count:
            self._change(now, count, target)

    def _wanted_count(self, now: float, number: int, count: int) -> int:
        rule = self._rule
        if rule.metric == "schedule":
            ahead = int((self._terms.start_s + _AHEAD_S) / STEP_S)
            coming = max(self._rates[number : number + ahead + 1])
            return math.ceil(coming / (rule.target * self._terms.held_per_s) - 1e-9)
        while len(self._seen) > 1 and self._seen[1][0] <= now - _METRIC_AGE_S:
            self._seen.popleft()
        # Starting replicas count as idle, so that their work is not counted twice.
        ratio = self._seen[0][1] / count / rule.target
        if abs(ratio - 1) <= _TOLERANCE:
            return count
        return math.ceil(count * ratio - 1e-9)

    def _change(self, now: float, count: int, target: int) -> None:
        self._changes.append((now, target - count))
        if target > count:
            self._starting.append((now + self._terms.start_s, target - count))
        else:
            self._shrink(count - target)
        self._least, self._most = min(self._least, target), max(self._most, target)

    def _shrink(self, fewer: int) -> None:
        """Remove replicas; starting ones go first."""
        while fewer and self._starting:
            at, count = self._starting.pop()
            gone = min(count, fewer)
            fewer -= gone
            if count > gone:
                self._starting.append((at, count - gone))
        self._ready = max(1, self._ready - fewer)
