"""The highest rate that holds a target: found by bisection, confirmed by repeats, given with an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from tritonkit.errors import ClientError
from tritonkit.machine import cores
from tritonkit.perf.load.openloop.arrivals import Arrivals
from tritonkit.perf.load.openloop.run import OpenLoad
from tritonkit.perf.load.openloop.sender import INTERRUPTED
from tritonkit.perf.load.openloop.slo import Slo

__all__ = ["RateSearch", "RateTrial", "TrialReport", "Trials", "find_rate"]

_PROBE_PER_S, _PROBE_S = 10.0, 2.0
_LEAST_PER_S = 0.5
_FEWEST = 10
"""The fewest requests in the longest trial, which bound the lowest tried rate: fewer say nothing about a target."""
_TAIL = 5
"""Answers above the target's percentile that a trial should see, at its rate."""
_MOST_TRIALS = 40


class TrialReport(Protocol):
    """The parts of a run's report that the search reads."""

    @property
    def duration_s(self) -> float:
        """The counted part of the run."""

    @property
    def cpu_shares(self) -> tuple[float, ...]:
        """Processor time of each of the generator's processes, relative to one core."""

    @property
    def missed(self) -> tuple[str, ...]:
        """A line for each target that was missed."""

    @property
    def invalid(self) -> tuple[str, ...]:
        """Reasons why its figures describe the generator rather than the server."""

    @property
    def ended(self) -> str:
        """The reason why the run ended early, if it did."""

    @property
    def error_rate(self) -> float:
        """The error rate of the worst model, 0 to 1."""

    def tail_ms(self, slo: Slo) -> float | None:
        """The tail latency at the target's highest percentile, of the slowest model; None if no answer was right."""

    def mean_ms(self) -> float | None:
        """The mean time of a request since it was sent, over all models; None if no answer was right."""

    def failed_words(self) -> Iterable[str]:
        """The messages of failures."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""


R = TypeVar("R", bound=TrialReport)
R_co = TypeVar("R_co", bound=TrialReport, covariant=True)


class Trials(Protocol[R_co]):
    """Anything that can run a load: the `Generator`, and that of language models."""

    def run(self, load: OpenLoad) -> R_co:
        """Send for the run's time, and wait for the answers."""


@dataclass(frozen=True)
class RateTrial:
    """One run: its rate, whether it held the target, and what was seen."""

    rate_per_s: float
    duration_s: float
    holds: bool
    tail_ms: float | None
    """The tail latency at the target's highest percentile, of the slowest model."""
    error_rate: float
    valid: bool
    missed: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: TrialReport, rate_per_s: float, slo: Slo) -> RateTrial:
        """The trial of a run that was judged by this target."""
        return cls(
            rate_per_s,
            report.duration_s,
            not report.missed,
            report.tail_ms(slo),
            report.error_rate,
            not report.invalid,
            report.missed,
        )


@dataclass(frozen=True)
class RateSearch(Generic[R]):
    """The outcome of a search.

    Args:
        rate_per_s: the highest rate at which most runs held the target; 0 if there is none.
        low: the highest rate at which all did. high: the lowest rate above it at which none did; None if no run missed.
        limited_by: "target", or "generator" if its requests were late at `high`.
        trials: all runs, in order.
        ended: the reason why the search ended early, if it did.
        report: the report of the last run at `rate_per_s` that held.
        unit: the rate's unit: requests or sequences.
    """

    slo: Slo
    rate_per_s: float
    low: float
    high: float | None
    limited_by: str
    trials: tuple[RateTrial, ...]
    ended: str = ""
    report: R | None = None
    unit: str = "requests"

    @property
    def summary(self) -> str:
        """The result in a sentence."""
        if not self.rate_per_s and self.ended:
            return f"No rate was found that holds {self.slo}: {self.ended}."
        if not self.rate_per_s:
            least = min((trial.rate_per_s for trial in self.trials), default=_LEAST_PER_S)
            return f"No rate from {least:.2g}/s on held {self.slo}."
        text = f"{self.rate_per_s:.1f} {self.unit}/s hold {self.slo}"
        if self.high is None:
            text += "; no higher rate was missed"
        else:
            text += f"; all runs held at {self.low:.1f}/s and none at {self.high:.1f}/s"
        if self.limited_by == "generator":
            text += ". Above that the load generator was late: it, or the cores that it shares, is the limit"
        return text + "."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "slo": str(self.slo),
            "unit": self.unit,
            "rate_per_s": self.rate_per_s,
            "low": self.low,
            "high": self.high,
            "limited_by": self.limited_by,
            "ended": self.ended,
            "trials": [asdict(trial) for trial in self.trials],
            "report": None if self.report is None else self.report.to_dict(),
        }


class _Ended(Exception):
    """The search is over before its end; its text says why."""


class _Search(Generic[R]):
    """Trials so far, and the next one's settings."""

    def __init__(
        self, generator: Trials[R], slo: Slo, load: OpenLoad, longest_s: float, say: Callable[[RateTrial], None]
    ) -> None:
        self.generator, self.slo, self.say = generator, slo, say
        self.longest_s = longest_s
        self.least_per_s = max(_LEAST_PER_S, _FEWEST / longest_s)
        self.load = replace(load, slo=slo, give_up=True)
        self.trials: list[RateTrial] = []
        self.reports: dict[float, R] = {}

    def holds(self, rate: float) -> bool:
        """Run one trial, with one more process if the generator was the limit."""
        if len(self.trials) >= _MOST_TRIALS:
            raise _Ended(f"{_MOST_TRIALS} trials were not enough: the server's speed changes too much")
        report = self._run(rate)
        while report.missed and report.invalid and len(report.cpu_shares) < cores():
            used = len(report.cpu_shares)
            self.load = replace(self.load, processes=max(used + 1, self.load.processes or 0))
            report = self._run(rate)
            if len(report.cpu_shares) <= used:  # a generator that has one process
                break
        return not report.missed

    def _run(self, rate: float) -> R:
        percent = self.slo.tightest[0]
        wanted_s = _TAIL / (1 - percent / 100) / rate
        duration_s = min(max(self.load.duration_s, wanted_s), self.longest_s)
        arrivals = replace(self.load.arrivals, seed=self.load.arrivals.seed + 7 * len(self.trials))
        load = replace(self.load, rate_per_s=rate, duration_s=duration_s, arrivals=arrivals)
        report = self.generator.run(load)
        if report.ended == INTERRUPTED:
            raise _Ended(INTERRUPTED)
        trial = RateTrial.of(report, rate, self.slo)
        self.trials.append(trial)
        self.say(trial)
        if trial.holds:
            self.reports[rate] = report
        return report


def find_rate(
    generator: Trials[R],
    slo: Slo,
    *,
    start_per_s: float | None = None,
    trial_s: float = 5.0,
    longest_s: float | None = None,
    repeats: int = 3,
    precision: float = 0.05,
    arrivals: Arrivals | None = None,
    processes: int | None = None,
    unit: str = "requests",
    say: Callable[[RateTrial], None] = lambda _: None,
) -> RateSearch[R]:
    """Double or halve until the target is met once and missed once, halve that range until it is as narrow as
    `precision`, then repeat at its lower end, and go down by `precision` while most repeats miss.

    A trial ends as soon as it is certain that it misses. An interrupt returns the result so far.

    Args:
        start_per_s: the first rate; by default half of the rate of one caller.
        trial_s: duration of a trial; up to `longest_s`, by default six times that, if few requests come.
        repeats: runs at the final rate.
        unit: the rate's unit: requests or sequences.
        precision: the relative width of the range.
        say: called with each trial.

    Raises:
        ClientError: the server does not answer, or the target is missed at any rate.
    """
    load = OpenLoad(1.0, trial_s, arrivals=arrivals or Arrivals(), processes=processes)
    search: _Search[R] = _Search(generator, slo, load, longest_s or 6 * trial_s, say)
    low, high, ended = 0.0, None, ""
    try:
        low, high = _bracket(search, start_per_s or _start(search), precision)
        if low:
            low, high = _confirmed(search, low, high, repeats, precision)
    except _Ended as why:
        ended = str(why)
    except KeyboardInterrupt:
        ended = INTERRUPTED
    return _result(search, ended, unit)


def _start(search: _Search[R]) -> float:
    """Half of the rate of one caller."""
    load = replace(
        search.load,
        rate_per_s=_PROBE_PER_S,
        duration_s=_PROBE_S,
        give_up=False,
        arrivals=Arrivals("constant"),
        warm_s=0.5,
    )
    report = search.generator.run(load)
    if report.ended:
        raise _Ended(report.ended)
    mean_ms = report.mean_ms()
    if mean_ms is None:
        words = next(iter(report.failed_words()), "no answer")
        raise ClientError("the first requests", found=words, wanted="a right answer")
    return max(search.least_per_s, 500.0 / mean_ms)


def _bracket(search: _Search[R], rate: float, precision: float) -> tuple[float, float | None]:
    """A rate that held the target and one that missed it, close to each other; 0 if none held."""
    low, high = 0.0, None
    while high is None or not low:
        if search.holds(rate):
            low, rate = rate, (rate * 2 if high is None else rate)
        else:
            high, rate = rate, (rate / 2 if not low else rate)
            if not low and rate < search.least_per_s:
                return 0.0, high
    while high / low > 1 + precision:
        middle = math.sqrt(low * high)
        if search.holds(middle):
            low = middle
        else:
            high = middle
    return low, high


def _confirmed(
    search: _Search[R], low: float, high: float | None, repeats: int, precision: float
) -> tuple[float, float | None]:
    """The first rate from `low` down at which most runs hold."""
    while low >= search.least_per_s:
        runs = [trial.holds for trial in search.trials if trial.rate_per_s == low]
        while len(runs) < repeats:
            runs.append(search.holds(low))
        if 2 * sum(runs) > len(runs):
            return low, high
        low, high = low / (1 + precision), low
    return 0.0, high


def _result(search: _Search[R], ended: str, unit: str) -> RateSearch[R]:
    """The interval from all trials."""
    by_rate: dict[float, list[bool]] = {}
    for trial in search.trials:
        by_rate.setdefault(trial.rate_per_s, []).append(trial.holds)
    most = [rate for rate, held in by_rate.items() if 2 * sum(held) > len(held)]
    missed = sorted(rate for rate, held in by_rate.items() if not any(held))
    # A rate that held once above one that missed was luck.
    if missed and (fair := [rate for rate in most if rate < missed[-1]]):
        most = fair
    rate = max(most, default=0.0)
    sure = [tried for tried, held in by_rate.items() if all(held) and tried <= rate]
    high = next((tried for tried in missed if tried > rate), None)
    late = any(not trial.valid for trial in search.trials if trial.rate_per_s == high)
    return RateSearch(
        search.slo,
        rate,
        max(sure, default=0.0),
        high,
        "generator" if late else "target",
        tuple(search.trials),
        ended,
        search.reports.get(rate),
        unit,
    )
