"""A day of a fleet under an autoscaler of Kubernetes, to compare metrics, targets and windows.

Like `tritonkit.perf.plan.scaling`, in steps of some seconds, each from one replica's `Curve`. But the controller is
`autoscaler`, and the metrics are Triton's own, as old as a scrape and the window of a rate make them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tools.autoscaler import SYNC_S, Autoscaler, Behavior, Reading
from tritonkit.perf.plan.sizing import Curve, Fleet
from tritonkit.perf.plan.traffic import STEP_S, Traffic

__all__ = ["AutoscaledDay", "Lag", "MeasuredReplica", "Targets", "autoscaled_day"]

_QUANTILES = 200
_FLAP_S = 900.0
_BINS = np.logspace(-1, 7, 1601)
"""Milliseconds: neighbors are 1.2 % apart."""


@dataclass(frozen=True)
class Targets:
    """The autoscaler's targets; at least one.

    Args:
        cpu: share of the pod's limit, 0 to 1. queue: time in the queue over computing time.
        pending: requests that wait at a replica.
    """

    cpu: float | None = None
    queue: float | None = None
    pending: float | None = None


@dataclass(frozen=True)
class Lag:
    """Seconds between two scrapes, of the window of a rate, and from a decision until a new pod answers."""

    scrape_s: float = 15.0
    window_s: float = 60.0
    start_s: float = 30.0


class MeasuredReplica:
    """One replica at any rate: its latencies, its busy share, and the waits of its requests."""

    def __init__(self, fleet: Fleet, curve: Curve) -> None:
        places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        self.most_per_s = curve.rates_per_s[-1]
        self._rates = np.array(curve.rates_per_s)
        self._latency_ms = np.array([1e3 * np.quantile(o.latency_s, places) for o in curve.outcomes])
        self._busy = np.array([o.busy for o in curve.outcomes])
        costs = fleet.costs
        compute_s = np.array([costs.run_s(max(1.0, o.batch)) for o in curve.outcomes])
        mean_s = np.array([float(o.latency_s.mean()) for o in curve.outcomes])
        self._compute_s = compute_s
        self._queue_s = np.maximum(0.0, mean_s - compute_s - costs.around_s)

    def latency_ms(self, rate_per_s: float) -> NDArray[np.float64]:
        """Quantiles of the latency: float64 [200]."""
        place = float(np.interp(rate_per_s, self._rates, np.arange(len(self._rates))))
        low = min(int(place), len(self._rates) - 2)
        share = place - low
        interpolated = (1 - share) * self._latency_ms[low] + share * self._latency_ms[low + 1]
        return np.asarray(interpolated, dtype=np.float64)

    def state(self, rate_per_s: float) -> tuple[float, float, float]:
        """The busy share, 0 to 1; mean seconds that a request waits and that it computes."""
        busy, queue, compute = (
            float(np.interp(rate_per_s, self._rates, column)) for column in (self._busy, self._queue_s, self._compute_s)
        )
        return busy, queue, compute


@dataclass(frozen=True)
class AutoscaledDay:
    """A day under one rule.

    Args:
        p99_ms: p99 latency of all its requests. late: the share of requests over the target, 0 to 1.
        replica_hours: paid hours, starting replicas included.
        changes, flaps: changes of the number, and changes back within a quarter of an hour.
        lag_s: mean time from the moment when too few replicas answer until enough do.
        replicas: that answer, in each step.
    """

    p99_ms: float
    late: float
    replica_hours: float
    changes: int
    flaps: int
    lag_s: float
    replicas: tuple[int, ...]


def autoscaled_day(
    traffic: Traffic,
    replica: MeasuredReplica,
    targets: Targets,
    *,
    behavior: Behavior,
    lag: Lag,
    target_ms: float,
    held_per_s: float,
    least: int,
    most: int,
) -> AutoscaledDay:
    """Run a day.

    Args:
        target_ms: the target for a request's latency. held_per_s: the rate that one replica holds within it.
        least, most: replicas.
    """
    run = _Run(replica, targets, lag, target_ms, held_per_s, Autoscaler(least, most, behavior))
    for step, rate in enumerate(traffic.rates_per_s.tolist()):
        run.step(step * STEP_S, rate)
    return run.day()


@dataclass
class _Run:
    """The fleet at a moment of the day."""

    replica: MeasuredReplica
    targets: Targets
    lag: Lag
    target_ms: float
    held_per_s: float
    scaler: Autoscaler
    counts: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(_BINS) + 1))
    late: float = 0.0
    paid_s: float = 0.0
    backlog: float = 0.0
    starting: deque[float] = field(default_factory=deque)
    samples: deque[tuple[float, ...]] = field(default_factory=deque)
    changes: list[tuple[float, int]] = field(default_factory=list)
    answering: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    was_behind: bool = False

    def __post_init__(self) -> None:
        self.ready = self.scaler.least

    def step(self, now: float, rate: float) -> None:
        while self.starting and self.starting[0] <= now:
            self.starting.popleft()
            self.ready += 1
        self._serve(now, rate)
        self._look_behind(rate)
        self.answering.append(self.ready)
        self.paid_s += STEP_S * (self.ready + len(self.starting))
        if now % SYNC_S == 0:
            self._scale(now)

    def day(self) -> AutoscaledDay:
        total = float(self.counts.sum())
        place = int(np.searchsorted(np.cumsum(self.counts), 0.99 * total))
        flaps = sum(
            1
            for (before, up), (after, then) in zip(self.changes, self.changes[1:], strict=False)
            if (up > 0) != (then > 0) and after - before <= _FLAP_S
        )
        lag_s = STEP_S * float(np.mean(self.behind)) if self.behind else 0.0
        return AutoscaledDay(
            float(_BINS[min(place, len(_BINS) - 1)]),
            self.late / total,
            self.paid_s / 3600,
            len(self.changes),
            flaps,
            lag_s,
            tuple(self.answering),
        )

    def _serve(self, now: float, rate: float) -> None:
        able = self.ready * self.replica.most_per_s
        arrived = rate * STEP_S + self.backlog
        served = min(arrived, able * STEP_S)
        self.backlog = arrived - served
        waited_s = self.backlog / able
        rate_of_one = served / STEP_S / self.ready
        latency = self.replica.latency_ms(rate_of_one) + 1e3 * waited_s
        weight = rate * STEP_S / _QUANTILES
        np.add.at(self.counts, np.searchsorted(_BINS, latency), weight)
        self.late += weight * int((latency > self.target_ms).sum())
        busy, queue_s, compute_s = self.replica.state(rate_of_one)
        done = served / STEP_S
        waits = rate * queue_s + self.backlog
        # Growth of the counters in a second, and gauges: busy replicas, queue and compute seconds, waiting requests.
        self.samples.append((now, busy * self.ready, done * (queue_s + waited_s), done * compute_s, waits))

    def _look_behind(self, rate: float) -> None:
        is_behind = self.ready * self.held_per_s < rate
        if is_behind and not self.was_behind:
            self.behind.append(0)
        if is_behind:
            self.behind[-1] += 1
        self.was_behind = is_behind

    def _scale(self, now: float) -> None:
        count = self.ready + len(self.starting)
        decided = self.scaler.decide(now, count, self.ready, self._readings(now))
        if decided == count:
            return
        self.changes.append((now, decided - count))
        if decided > count:
            self.starting.extend([now + self.lag.start_s] * (decided - count))
            return
        for _ in range(count - decided):
            if self.starting:
                self.starting.pop()
            else:
                self.ready -= 1

    def _readings(self, now: float) -> list[Reading]:
        """Metrics as the last scrape saw them, over the window of the rate."""
        scraped = now - self.lag.scrape_s
        while len(self.samples) > 1 and self.samples[0][0] < scraped - self.lag.window_s:
            self.samples.popleft()
        rows = np.array([row[1:] for row in self.samples if row[0] <= scraped] or [self.samples[0][1:]])
        busy, queue, compute, waits = rows.mean(axis=0).tolist()
        readings = []
        if self.targets.cpu is not None:
            readings.append(Reading(busy / self.ready, self.targets.cpu, "Utilization"))
        if self.targets.queue is not None:
            readings.append(Reading(queue / max(compute, 1e-9), self.targets.queue, "Value"))
        if self.targets.pending is not None:
            readings.append(Reading(waits, self.targets.pending, "AverageValue"))
        return readings
