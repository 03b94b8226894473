"""Kubernetes' horizontal pod autoscaler as pure arithmetic: autoscaling/v2, as KEDA also drives it.

Written from its documented algorithm ("Horizontal Pod Autoscaling": algorithm details, configurable scaling
behavior): the number from each metric, the largest of them, stabilization windows, then the policies' limits.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["SYNC_S", "Autoscaler", "Behavior", "Direction", "Policy", "Reading"]

SYNC_S = 15.0
"""Seconds between two looks of the controller."""
TOLERANCE = 0.1
_EXACT = 1e-9


@dataclass(frozen=True)
class Reading:
    """A metric at a moment.

    Args:
        value: the measured value. target: the intended one.
        kind: `Value`: of the whole, not added up (a ratio); `AverageValue`: added up over the replicas, with the target
            of one replica; `Utilization`: the mean of the replicas that answer, others counting as 0.
    """

    value: float
    target: float
    kind: Literal["Value", "AverageValue", "Utilization"]

    def replicas(self, count: int, ready: int, tolerance: float = TOLERANCE) -> int:
        """The number of replicas that it requires.

        Args:
            count: the configured number. ready: the number that answers.
        """
        if self.kind == "AverageValue":
            ratio = self.value / (self.target * max(count, 1))
            return count if abs(ratio - 1) <= tolerance else _up(self.value / self.target)
        ratio = self.value / self.target
        if abs(ratio - 1) <= tolerance:
            return count
        if self.kind == "Value" or ratio < 1 or ready == count:
            return _up(ratio * ready)
        # Starting replicas count as idle, and do not reverse the direction.
        ratio = ratio * ready / count
        return count if ratio <= 1 + tolerance else _up(ratio * count)


@dataclass(frozen=True)
class Policy:
    """A limit on the change within a period of seconds: a number of replicas (`Pods`), or a percentage of them."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: float


@dataclass(frozen=True)
class Direction:
    """The rules for changes in one direction.

    Args:
        stabilization_s: the least drastic number of this many seconds counts.
        policies: limits; without any the number may be anything.
        select: the policy that counts: the one that allows the most, the least, or none of them.
    """

    stabilization_s: float
    policies: tuple[Policy, ...] = ()
    select: Literal["Max", "Min", "Disabled"] = "Max"


@dataclass(frozen=True)
class Behavior:
    """`behavior` of a HorizontalPodAutoscaler; Kubernetes' own by default."""

    up: Direction = Direction(0.0, (Policy("Percent", 100, 15.0), Policy("Pods", 4, 15.0)))
    down: Direction = Direction(300.0, (Policy("Percent", 100, 15.0),))


@dataclass
class Autoscaler:
    """One autoscaler, which remembers its decisions and changes.

    Args:
        least, most: replicas.
    """

    least: int
    most: int
    behavior: Behavior = field(default_factory=Behavior)
    _wishes: deque[tuple[float, int]] = field(default_factory=deque, init=False, repr=False)
    _changes: deque[tuple[float, int]] = field(default_factory=deque, init=False, repr=False)

    def decide(self, now: float, count: int, ready: int, readings: Sequence[Reading]) -> int:
        """The number of replicas from now on.

        Args:
            now: in seconds; at each call later than before.
            count: the configured number. ready: the number that answers.
        """
        count_by_metrics = max((reading.replicas(count, ready) for reading in readings), default=count)
        stable = self._stabilized(now, count, count_by_metrics)
        decided = self._limited(now, count, stable)
        if decided != count:
            self._changes.append((now, decided - count))
        return decided

    def _stabilized(self, now: float, count: int, target: int) -> int:
        up_s, down_s = self.behavior.up.stabilization_s, self.behavior.down.stabilization_s
        self._wishes.append((now, target))
        while self._wishes[0][0] < now - max(up_s, down_s):
            self._wishes.popleft()
        lowest = min(wish for at, wish in self._wishes if at >= now - up_s)
        highest = max(wish for at, wish in self._wishes if at >= now - down_s)
        return min(max(count, lowest), highest)

    def _limited(self, now: float, count: int, target: int) -> int:
        longest_s = max((p.period_s for p in (*self.behavior.up.policies, *self.behavior.down.policies)), default=0.0)
        while self._changes and self._changes[0][0] <= now - longest_s:
            self._changes.popleft()
        if target > count:
            return max(self.least, min(target, self._highest(now, count), self.most))
        return min(self.most, max(target, self._lowest(now, count), self.least))

    def _highest(self, now: float, count: int) -> int:
        rules = self.behavior.up
        limits = [_grown(policy, self._before(now, count, policy.period_s)) for policy in rules.policies]
        if rules.select == "Disabled":
            return count
        if not limits:
            return self.most
        return max(count, max(limits) if rules.select == "Max" else min(limits))

    def _lowest(self, now: float, count: int) -> int:
        rules = self.behavior.down
        limits = [_shrunk(policy, self._before(now, count, policy.period_s)) for policy in rules.policies]
        if rules.select == "Disabled":
            return count
        if not limits:
            return self.least
        return min(count, min(limits) if rules.select == "Max" else max(limits))

    def _before(self, now: float, count: int, period_s: float) -> int:
        """The number of replicas when a policy's period began."""
        return count - sum(change for at, change in self._changes if at > now - period_s)


def _up(number: float) -> int:
    return math.ceil(number - _EXACT)


def _grown(policy: Policy, start: int) -> int:
    if policy.kind == "Pods":
        return start + policy.value
    return _up(start * (1 + policy.value / 100))


def _shrunk(policy: Policy, start: int) -> int:
    if policy.kind == "Pods":
        return start - policy.value
    return math.floor(start * (1 - policy.value / 100) + _EXACT)
