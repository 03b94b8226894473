"""Callers whose client sends several items in one request: the rate of items that holds a target.

Items arrive one by one. The client puts them in a group, which is sent as one request when it is full or its first
item has waited long enough. That is the client's batching with `Adaptive(max_batch=most, min_wait_ms=delay,
max_wait_ms=delay)` and free places for every batch, seen from one client with many callers.

generator.prepare(range(1, 9))
grouped_trial(generator, 500.0, 4.0, 8, 0.002, parse_slo(["p99=20ms"])).trial.holds
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tritonkit.errors import ClientError, UsageError
from tritonkit.perf.load.openloop.arrivals import Arrivals, Moments
from tritonkit.perf.load.openloop.find_rate import RateTrial
from tritonkit.perf.load.openloop.record import Record
from tritonkit.perf.load.openloop.results import Times, judge_slo, series_of, times_of, why_invalid
from tritonkit.perf.load.openloop.run import Generator, OpenLoad, moments_of
from tritonkit.perf.load.openloop.slo import Slo

__all__ = ["GroupedTrial", "Groups", "climb", "group", "grouped_trial", "highest_item_rate"]

_WARM_S = 0.5
_AROUND_S = 1.5
"""Seconds of a trial in addition to the counted ones: its warm-up, the fork of the sender, the last answers."""
_FIRST, _PRECISION = 1.05, 0.05
_CLIMB, _STEEPEST = 1.25, 2.0
"""The first step up, the growth of further steps, and the largest step."""
_SURE = 2
"""Further runs that have to hold at the final rate."""


@dataclass(frozen=True)
class Groups:
    """Items joined into groups.

    Args:
        closes: float64 [groups], when each is sent, ascending.
        sizes: int64 [groups], the number of items.
        kinds: int64 [groups], the kind of their items.
        of_item: int64 [items], the group of each item.
    """

    closes: Moments
    sizes: NDArray[np.int64]
    kinds: NDArray[np.int64]
    of_item: NDArray[np.int64]


@dataclass(frozen=True)
class GroupedTrial:
    """One run.

    Args:
        trial: the run as a trial at its rate of items.
        latency: latency of items answered right, each from its own arrival; None if there was none.
        company: the mean number of items in the request of an item, itself included.
    """

    trial: RateTrial
    latency: Times | None
    company: float


def group(arrivals: Moments, most: int, delay_s: float, kinds: NDArray[np.int64] | None = None) -> Groups:
    """Close a group when it has `most` items or its first has waited for `delay_s`.

    Args:
        arrivals: float64 [items], ascending.
        kinds: int64 [items]: items of different kinds go in different groups. None: all are of one kind.
    """
    kinds = np.zeros(len(arrivals), np.int64) if kinds is None else kinds
    of_item = np.zeros(len(arrivals), np.int64)
    closes: list[float] = []
    sizes: list[int] = []
    kind_of: list[int] = []
    for kind in np.unique(kinds):
        own = np.flatnonzero(kinds == kind)
        times = arrivals[own]
        begin = 0
        while begin < len(own):
            last = times[begin] + delay_s
            end = min(begin + most, int(np.searchsorted(times, last, "right")))
            of_item[own[begin:end]] = len(closes)
            closes.append(float(times[end - 1] if end - begin == most else last))
            sizes.append(end - begin)
            kind_of.append(int(kind))
            begin = end
    order = np.argsort(closes, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Groups(
        np.array(closes)[order], np.array(sizes, np.int64)[order], np.array(kind_of, np.int64)[order], place[of_item]
    )


def grouped_trial(
    generator: Generator, rate_per_s: float, seconds: float, most: int, delay_s: float, slo: Slo, seed: int = 0
) -> GroupedTrial:
    """Let items arrive at a rate for a time (Poisson), send them in groups, and judge each by its own latency, which
    includes the wait for its group. All items of a request that fails or is answered wrong have failed.

    Args:
        generator: the load generator for one model, prepared with requests of 1 to `most` items. A group that is not
            full is sent at its own size, because the time of a request depends on it.
        rate_per_s: the rate of items. most, delay_s: see `group`.

    Raises:
        UsageError: the generator is not prepared in this way, no item falls into the time, or too many do.
        ClientError: a server does not answer.
    """
    _check(generator, most)
    arrivals, warm = moments_of(OpenLoad(rate_per_s, seconds, _WARM_S, Arrivals(seed=seed)))
    rng = np.random.default_rng((seed, 1))
    single = np.flatnonzero(generator.items == 1)
    kinds = generator.layouts[single[rng.integers(len(single), size=len(arrivals))]]
    groups = group(arrivals, most, delay_s, kinds)
    sent = generator.send(groups.closes, _choice(generator, groups, rng))
    record = _of_items(sent, arrivals, groups)
    counted = arrivals >= warm
    series = series_of(generator.models[0], record, counted, seconds, slo)
    missed = tuple(judge_slo(series, slo))
    percent = slo.tightest[0]
    trial = RateTrial(
        rate_per_s,
        seconds,
        not missed,
        series.latency.at(percent) if series.latency else None,
        series.error_rate,
        not _invalid(sent, series.latency),
        missed,
    )
    company = float(groups.sizes[groups.of_item[counted]].mean())
    return GroupedTrial(trial, series.latency, company)


def highest_item_rate(
    generator: Generator,
    slo: Slo,
    known_per_s: float,
    most: int,
    delay_s: float,
    *,
    seconds: float,
    until: float,
    say: Callable[[GroupedTrial], None] = lambda _: None,
) -> tuple[float, tuple[GroupedTrial, ...]]:
    """The highest rate of items above a known one that holds the target in groups, and the trials: see `climb`.

    Args:
        known_per_s: the rate that single items hold.
        seconds: the duration of a trial.
        until: a moment of the monotonic clock, after which no trial ends.
        say: called with each trial.

    Raises:
        UsageError, ClientError: see `grouped_trial`.
    """
    trials: list[GroupedTrial] = []
    longest_s = seconds + _AROUND_S

    def holds(rate: float) -> bool:
        nonlocal longest_s
        began = time.monotonic()
        trials.append(grouped_trial(generator, rate, seconds, most, delay_s, slo, 7 * len(trials)))
        longest_s = max(longest_s, time.monotonic() - began)
        say(trials[-1])
        return trials[-1].trial.holds

    rate = climb(holds, known_per_s, lambda runs: time.monotonic() + runs * longest_s <= until)
    return rate, tuple(trials)


def climb(holds: Callable[[float], bool], known_per_s: float, room: Callable[[int], bool]) -> float:
    """The highest rate above a known one that holds in a run and in further ones; 0 if there is none.

    Gives up at the first miss at 1.05 times the known rate; otherwise climbs until a rate misses, halves that range
    until it is 5 % wide, and goes down by 5 % while a further run at its lower end misses.

    Args:
        holds: the function that makes a run at a rate and says whether it held.
        room: the function that says whether there is time for a number of runs.
    """
    low, high = known_per_s * _FIRST, 0.0
    if not (room(1 + _SURE) and holds(low)):
        return 0.0
    step = 1.0
    while (not high or high / low > 1 + _PRECISION) and room(1 + _SURE):
        step = min(step * _CLIMB, _STEEPEST)
        rate = math.sqrt(low * high) if high else low * step
        if holds(rate):
            low = rate
        else:
            high = rate
    while low > known_per_s and room(_SURE):
        if all(holds(low) for _ in range(_SURE)):
            return low
        low /= 1 + _PRECISION
    return 0.0


def _of_items(record: Record, arrivals: Moments, groups: Groups) -> Record:
    """The record of each item, from that of its group's request; its intended moment is its arrival."""
    own = groups.of_item
    return replace(
        record, intended=arrivals, sent=record.sent[own], answered=record.answered[own], outcome=record.outcome[own]
    )


def _invalid(sent: Record, latency: Times | None) -> tuple[str, ...]:
    """Whether requests left so late after their groups had closed that the generator was the limit."""
    there = ~np.isnan(sent.sent)
    lag = times_of(1e3 * (sent.sent - sent.intended)[there])
    if lag is None:
        raise ClientError("the run", found=sent.ended or "no request was sent")
    share = sent.cpu_s / max(float(sent.sent[there].max()), 1e-3)
    return why_invalid(lag, latency.at(99.0) if latency else None, (share,))


def _check(generator: Generator, most: int) -> None:
    where = f"groups of up to {most} items"
    if len(generator.models) != 1:
        raise UsageError(where, found=f"{len(generator.models)} models", wanted="one")
    if lacking := sorted(set(range(1, most + 1)) - set(generator.items.tolist())):
        raise UsageError(
            where,
            found=f"no request of {lacking[0]} items",
            wanted=f"a generator with requests of 1 to {most} items",
            todo=f"generator.prepare(range(1, {most + 1}))",
        )


def _choice(generator: Generator, groups: Groups, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random request with the size and layout of each group."""
    choice = np.empty(len(groups.sizes), np.int64)
    for size, kind in set(zip(groups.sizes.tolist(), groups.kinds.tolist(), strict=True)):
        fits = np.flatnonzero((generator.items == size) & (generator.layouts == kind))
        here = (groups.sizes == size) & (groups.kinds == kind)
        choice[here] = fits[rng.integers(len(fits), size=int(here.sum()))]
    return choice
