"""The report of an open-loop run: latency from the moment each request was meant to be sent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonkit.perf.load.gpu import GpuReport
from tritonkit.perf.load.histogram import Histogram
from tritonkit.perf.load.openloop.record import Record
from tritonkit.perf.load.openloop.slo import Slo

__all__ = [
    "Answers",
    "Interval",
    "OpenReport",
    "OpenSeries",
    "Second",
    "Times",
    "judge_slo",
    "series_of",
    "times_dict",
    "times_of",
    "why_invalid",
]

POINTS = (50.0, 90.0, 95.0, 99.0, 99.9)
_SURE = 1.96
"""Standard deviations within which 95 % of a normal distribution lie."""
_LATE_MS, _LATE_SHARE = 1.0, 0.1
_BUSY = 0.9
"""Processor share of one core above which a generator's process is the limit."""
_SENT = 0.99


@dataclass(frozen=True)
class Interval:
    """A percentile, and its interval in 95 of 100 runs like this; None if too few were counted."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Times:
    """A distribution in milliseconds; percentiles by percent."""

    count: int
    mean: float
    largest: float
    percentiles: Mapping[float, Interval]

    def at(self, percent: float) -> float:
        """A percentile's value."""
        return self.percentiles[percent].value


@dataclass(frozen=True)
class Second:
    """One second of a run; requests belong to the second in which they were due."""

    at_s: float
    due: int
    right: int
    failed: int
    answers: int
    """Right answers that came in it, regardless of when they were due."""
    p50_ms: float | None
    """Latency of the right requests due in it."""
    p95_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class Answers:
    """The several answers to an arrival: calls of a sequence, or replies of a stream.

    Args:
        calls: the number of calls in a sequence; 1 for a stream.
        count: right calls; for streams, the replies of right streams. per_s: the same in a second.
        first: time to the first of them, from the moment the request or sequence was due.
        whole: time of right sequences to their last answer. None for streams, whose latency is the same.
    """

    calls: int
    count: int
    per_s: float
    first: Times | None
    whole: Times | None = None


@dataclass(frozen=True)
class OpenSeries:
    """One model.

    Args:
        requests: due requests, sent or not; for a model that keeps state, due sequences.
        right: right answers. failures: requests that failed, were answered wrong, or were never sent.
        offered_per_s: requests due in a second. rate_per_s: right answers in a second.
        latency: time to right answers, from the moment the request was due. For a stream it ends with the last reply.
            For a sequence it is the time of each call; later calls are due when the one before is answered.
        service: the same from the moment of sending.
        words: messages of failures, and their numbers.
        seconds: the seconds of the run; for sequences they count calls.
        unit: the unit of `requests`.
        answers: see `Answers`; None if a request has only one answer.
    """

    model: str
    requests: int
    right: int
    failures: int
    offered_per_s: float
    rate_per_s: float
    latency: Times | None
    service: Times | None
    histogram: Histogram
    words: Mapping[str, int] = field(default_factory=dict)
    seconds: tuple[Second, ...] = ()
    unit: str = "requests"
    answers: Answers | None = None

    @property
    def judged(self) -> tuple[tuple[str, Times | None], ...]:
        """The times that a target is for, each with its prefix in a message.

        First calls are also judged separately: only they wait for a place in the model, and they are few among all.
        """
        if self.answers is None or self.answers.whole is None:
            return (("", self.latency),)
        return ("", self.latency), ("first calls: ", self.answers.first)

    @property
    def mean_ms(self) -> float | None:
        """The mean time of a request or sequence since it was sent or due; None if no answer was right."""
        whole = self.answers.whole if self.answers else None
        times = whole or self.service
        return times.mean if times else None

    @property
    def error_rate(self) -> float:
        """Failures over requests, 0 to 1."""
        return self.failures / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class OpenReport:
    """A whole run.

    Args:
        duration_s: the counted part.
        lag: the generator's delay of sending after the due moments.
        cpu_shares: processor time of each of its processes, relative to one core.
        invalid: reasons why the figures describe the generator rather than the server.
        missed: one line for each target that was missed.
        ended: the reason why the run ended early, if it did.
    """

    duration_s: float
    series: tuple[OpenSeries, ...]
    lag: Times
    cpu_shares: tuple[float, ...]
    invalid: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    ended: str = ""
    counters: tuple[Mapping[str, Any], ...] = ()
    """The server's counters, second by second: see `counters.py`."""
    gpu: GpuReport | None = None
    """The servers' GPUs; None if they report none."""

    @property
    def error_rate(self) -> float:
        """The error rate of the worst model, 0 to 1."""
        return max(series.error_rate for series in self.series)

    def tail_ms(self, slo: Slo) -> float | None:
        """The tail latency at the target's highest percentile, of the slowest model; None if no answer was right."""
        percent = slo.tightest[0]
        judged = [times for series in self.series for _, times in series.judged]
        return max((times.at(percent) for times in judged if times), default=None)

    def mean_ms(self) -> float | None:
        """The mean time of a request since it was sent, over all models; None if no answer was right."""
        means = [mean for series in self.series if (mean := series.mean_ms) is not None]
        return sum(means) / len(means) if means else None

    def failed_words(self) -> list[str]:
        """The messages of failures."""
        return [word for series in self.series for word in series.words]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "duration_s": self.duration_s,
            "valid": not self.invalid,
            "invalid": list(self.invalid),
            "holds": not self.missed,
            "missed": list(self.missed),
            "ended": self.ended,
            "generator": {"lag_ms": times_dict(self.lag), "cpu_shares": list(self.cpu_shares)},
            "series": [_series_dict(series) for series in self.series],
            "counters": [dict(counter) for counter in self.counters],
        } | ({"gpu": self.gpu.to_dict()} if self.gpu else {})


def _series_dict(series: OpenSeries) -> dict[str, Any]:
    return {
        "model": series.model,
        "requests": series.requests,
        "right": series.right,
        "failures": series.failures,
        "error_rate": series.error_rate,
        "offered_per_s": series.offered_per_s,
        "rate_per_s": series.rate_per_s,
        "latency_ms": times_dict(series.latency),
        "service_ms": times_dict(series.service),
        "words": dict(series.words),
        "histogram": {"counts": series.histogram.counts(), "largest_ms": series.histogram.largest_ms},
        "seconds": [asdict(second) for second in series.seconds],
        "unit": series.unit,
        "answers": None if series.answers is None else _answers_dict(series.answers),
    }


def _answers_dict(answers: Answers) -> dict[str, Any]:
    return {
        "calls": answers.calls,
        "count": answers.count,
        "per_s": answers.per_s,
        "first_ms": times_dict(answers.first),
        "whole_ms": times_dict(answers.whole),
    }


def times_dict(times: Times | None) -> dict[str, Any] | None:
    """Plain values for JSON."""
    if times is None:
        return None
    points = {f"p{percent:g}": asdict(estimate) for percent, estimate in times.percentiles.items()}
    return {"count": times.count, "mean": times.mean, "largest": times.largest} | points


def times_of(ms: NDArray[np.float64], also: Sequence[float] = ()) -> Times | None:
    """A distribution of milliseconds; None for no values.

    Percentiles are nearest ranks. Their intervals lie between order statistics, by the normal approximation of the
    binomial. That assumes independent requests: if queues last long the intervals are too narrow.
    """
    if not len(ms):
        return None
    ordered = np.sort(ms)
    points = sorted({*POINTS, *also})
    return Times(
        len(ordered),
        float(ordered.mean()),
        float(ordered[-1]),
        {percent: _interval(ordered, percent / 100) for percent in points},
    )


def _interval(ordered: NDArray[np.float64], share: float) -> Interval:
    count = len(ordered)
    rank = max(1, math.ceil(share * count))
    spread = _SURE * math.sqrt(count * share * (1 - share))
    low, high = math.floor(share * count - spread), math.ceil(share * count + spread) + 1
    return Interval(
        float(ordered[rank - 1]),
        float(ordered[low - 1]) if low >= 1 else None,
        float(ordered[high - 1]) if high <= count else None,
    )


def series_of(model: str, record: Record, chosen: NDArray[np.bool_], duration_s: float, slo: Slo | None) -> OpenSeries:
    """One model's chosen requests of a run."""
    intended, sent = record.intended[chosen], record.sent[chosen]
    answered, outcome = record.answered[chosen], record.outcome[chosen]
    right = outcome == 0
    latency_ms = 1e3 * (answered - intended)[right]
    also = tuple(slo.percentiles) if slo else ()
    words = {record.failures[code - 1]: int((outcome == code).sum()) for code in np.unique(outcome[outcome > 0])}
    return OpenSeries(
        model=model,
        requests=len(intended),
        right=int(right.sum()),
        failures=int((~right).sum()),
        offered_per_s=len(intended) / duration_s,
        rate_per_s=int(right.sum()) / duration_s,
        latency=times_of(latency_ms, also),
        service=times_of(1e3 * (answered - sent)[right], also),
        histogram=Histogram.of(latency_ms),
        words=words,
        seconds=_seconds(intended, answered, right, duration_s),
    )


def _seconds(
    intended: NDArray[np.float64], answered: NDArray[np.float64], right: NDArray[np.bool_], duration_s: float
) -> tuple[Second, ...]:
    edges = np.append(np.arange(0.0, duration_s, 1.0), duration_s)
    if len(edges) > 2 and edges[-1] - edges[-2] < 0.5:  # the remainder joins the last whole second
        edges = np.delete(edges, -2)
    came = np.histogram(answered[right], edges)[0]
    order = np.argsort(intended, kind="stable")
    intended, answered, right = intended[order], answered[order], right[order]
    places = np.searchsorted(intended, edges)
    places[-1] = len(intended)
    seconds = []
    for k in range(len(edges) - 1):
        here = slice(places[k], places[k + 1])
        correct = right[here]
        ms = 1e3 * (answered[here] - intended[here])[correct]
        points = [None] * 3
        if len(ms):
            points = np.percentile(ms, (50, 95, 99), method="inverted_cdf").tolist()
        seconds.append(Second(float(edges[k]), len(correct), len(ms), int((~correct).sum()), int(came[k]), *points))
    return tuple(seconds)


def judge_slo(series: OpenSeries, slo: Slo) -> list[str]:
    """One line for each target that one model missed."""
    lines = []
    if series.error_rate > slo.error_rate:
        first = next(iter(series.words), "")
        lines.append(
            f"{series.model}: {series.error_rate:.3%} of the {series.unit} failed, at most {slo.error_rate:.3%}"
            f" ({series.failures} of {series.requests}; first: {first})"
        )
    for percent, most in slo.percentiles.items():
        if series.latency is None:
            lines.append(f"{series.model}: no right answer")
        for what, times in series.judged:
            if times and (measured := times.at(percent)) > most:
                lines.append(f"{series.model}: {what}p{percent:g} {measured:.2f} ms, at most {most:g} ms")
    return lines


def why_invalid(
    lag: Times | None,
    latency_p99_ms: float | None,
    cpu_shares: Sequence[float],
    todo: str = "give it more processes: --processes",
) -> tuple[str, ...]:
    """Reasons to say that the generator itself was the limit.

    Args:
        lag: None in a closed loop, where nothing is due.
        todo: advice for a busy process.
    """
    reasons = []
    late = lag.at(99.0) if lag else 0.0
    allowed = max(_LATE_MS, _LATE_SHARE * (latency_p99_ms or 0.0))
    if late > allowed:
        reasons.append(
            f"one request in a hundred was sent {late:.2f} ms late or later, more than {allowed:.2f} ms:"
            " the load generator had no core in time"
        )
    for number, share in enumerate(cpu_shares, 1):
        if share > _BUSY:
            reasons.append(f"process {number} of the generator used {share:.0%} of a core: {todo}")
    return tuple(reasons)
