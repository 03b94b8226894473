"""The report of a language model's load: times to first tokens, between tokens and of whole answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonkit.perf.load.generation.lengths import Counts
from tritonkit.perf.load.generation.records import GenerationRecord
from tritonkit.perf.load.generation.requests import TextRequests
from tritonkit.perf.load.gpu import GpuReport
from tritonkit.perf.load.openloop.results import Times, times_dict, times_of, why_invalid
from tritonkit.perf.load.openloop.slo import Slo

__all__ = ["GenerationReport", "GenerationSecond", "Spread", "report_of"]


@dataclass(frozen=True)
class Spread:
    """Numbers of tokens."""

    mean: float
    p50: float
    p95: float
    smallest: int
    largest: int

    @classmethod
    def of(cls, counts: Counts) -> Spread | None:
        """The spread of these numbers; None for no numbers."""
        if not len(counts):
            return None
        p50, p95 = np.percentile(counts, (50, 95), method="inverted_cdf").tolist()
        return cls(float(counts.mean()), p50, p95, int(counts.min()), int(counts.max()))


@dataclass(frozen=True)
class GenerationSecond:
    """One second of a run.

    Args:
        due, right, failed: requests due in it, those answered right, and the others.
        tokens: tokens of answers that came in it.
        ttft_p50_ms, ttft_p99_ms: time to the first token of the right answers due in it.
        itl_p50_ms, itl_p99_ms: time from the piece before to each piece that came in it.
    """

    at_s: float
    due: int
    right: int
    failed: int
    tokens: int
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None


@dataclass(frozen=True)
class GenerationReport:
    """A whole run. All times are of right answers, from the moment the request was due, in ms.

    Args:
        loop: "open" or "closed".
        duration_s: the counted part of the run.
        requests: due requests. right: right answers. failures: requests that failed or were answered wrong.
        offered_per_s: requests due in a second. rate_per_s: right answers in a second.
        tokens_per_s: tokens of answers that came in a second. prompt_tokens_per_s: tokens of the
            prompts of right answers.
        ttft: time to the first piece with tokens. itl: time between two pieces. tpot: time from the first to the last
            token of an answer, over all its tokens but the first. latency: time to the end. service: the same, from
            the moment of sending.
        prompt_asked, prompt_found: tokens of prompts, as drawn and as the server counted. output_asked: tokens of
            answers, as drawn.
        clipped: requests that were shortened to the model's window.
        window: the most tokens of prompt and answer together.
        compared: prompts that were answered twice. differing: prompts whose two answers begin differently.
        repeatable: whether they must begin in the same way.
        lag: delay of sending after the due moments; None in a closed loop.
        cpu_shares: processor time of the generator, relative to one core.
        invalid, missed, ended: see `OpenReport`.
        words: messages of failures, and their numbers.
        gpu: the servers' GPUs; None if they report none.
    """

    model: str
    loop: str
    duration_s: float
    requests: int
    right: int
    failures: int
    offered_per_s: float
    rate_per_s: float
    tokens_per_s: float
    prompt_tokens_per_s: float
    ttft: Times | None
    itl: Times | None
    tpot: Times | None
    latency: Times | None
    service: Times | None
    prompt_asked: Spread | None
    prompt_found: Spread | None
    output_asked: Spread | None
    clipped: int
    window: int
    compared: int
    differing: int
    repeatable: bool
    lag: Times | None
    cpu_shares: tuple[float, ...]
    words: Mapping[str, int] = field(default_factory=dict)
    seconds: tuple[GenerationSecond, ...] = ()
    invalid: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    ended: str = ""
    gpu: GpuReport | None = None

    @property
    def error_rate(self) -> float:
        """Failures over requests, 0 to 1."""
        return self.failures / self.requests if self.requests else 0.0

    def times(self) -> dict[str, Times | None]:
        """The distributions, by their names in reports."""
        return {
            "first token": self.ttft,
            "between tokens": self.itl,
            "per token": self.tpot,
            "whole answer": self.latency,
        }

    def tail_ms(self, slo: Slo) -> float | None:
        """The tail latency at the target's highest percentile; None if no answer was right."""
        of = self.latency if slo.percentiles else self.ttft if slo.ttft else self.itl
        return of.at(slo.tightest[0]) if of else None

    def mean_ms(self) -> float | None:
        """The mean time of a whole answer since its request was sent; None if no answer was right."""
        return self.service.mean if self.service else None

    def failed_words(self) -> list[str]:
        """The messages of failures."""
        return list(self.words)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = {
            name: value
            for name, value in vars(self).items()
            if not isinstance(value, Times | Spread) and name not in ("seconds", "lag", "cpu_shares", "gpu")
        }
        for name in ("ttft", "itl", "tpot", "latency", "service"):
            plain.pop(name, None)
            plain[f"{name}_ms"] = times_dict(getattr(self, name))
        for name in ("prompt_asked", "prompt_found", "output_asked"):
            spread = getattr(self, name)
            plain[name] = asdict(spread) if spread else None
        return (
            plain
            | {
                "valid": not self.invalid,
                "holds": not self.missed,
                "invalid": list(self.invalid),
                "missed": list(self.missed),
                "words": dict(self.words),
                "error_rate": self.error_rate,
                "generator": {"lag_ms": times_dict(self.lag), "cpu_shares": list(self.cpu_shares)},
                "seconds": [asdict(second) for second in self.seconds],
            }
            | ({"gpu": self.gpu.to_dict()} if self.gpu else {})
        )


@dataclass(frozen=True)
class _Pieces:
    """Replies with tokens, of the whole run.

    Args:
        at: float64 [m], seconds. counts: int64 [m], tokens. owner: int64 [m], the place of its request.
        first: bool [m], whether it is the first of its request.
        gap_ms: float64 [m], since the one before; NaN for the first.
    """

    at: NDArray[np.float64]
    counts: Counts
    owner: Counts
    first: NDArray[np.bool_]
    gap_ms: NDArray[np.float64]

    @classmethod
    def of(cls, record: GenerationRecord) -> _Pieces:
        sizes = np.diff(record.piece_ends, prepend=0)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        first = np.ones(len(owner), bool)
        first[1:] = owner[1:] != owner[:-1]
        gap_ms = 1e3 * np.diff(record.pieces, prepend=np.nan)
        return cls(record.pieces, record.counts, owner, first, np.where(first, np.nan, gap_ms))


def report_of(
    model: str,
    record: GenerationRecord,
    requests: TextRequests,
    *,
    users: int,
    warm_s: float,
    duration_s: float,
    window: int,
    repeatable: bool,
    slo: Slo | None,
) -> GenerationReport:
    """Judge a run.

    Args:
        users: the number of users of a closed loop; 0: an open loop.
        warm_s: seconds of warm-up; requests due in it do not count.
        duration_s: seconds that count, after the warm-up.
    """
    span_s = max(float(record.sent[~record.again].max(initial=0.0)), 1e-3)
    counted = _counted(record, warm_s, warm_s + duration_s)
    if record.ended_early:
        duration_s = max(min(span_s, warm_s + duration_s) - warm_s, 1e-3)
    right = counted & (record.outcome == 0)
    pieces = _Pieces.of(record)
    ttft_ms, tpot_ms = _of_requests(record, pieces)
    compared, differing = _compared(record, requests)
    lag = None if users else times_of(1e3 * (record.sent - record.due)[counted])
    times = _times(record, pieces, right, ttft_ms, tpot_ms, _percents(slo))
    ttft = times["ttft"]
    cpu_share = record.cpu_s / max(float(np.nanmax(record.ended[~record.again], initial=span_s)), span_s)
    return GenerationReport(
        model=model,
        loop="closed" if users else "open",
        duration_s=duration_s,
        **_rates(record, pieces, counted, right, warm_s, duration_s),
        **times,
        **_sizes(record, requests, counted, right),
        window=window,
        compared=compared,
        differing=differing,
        repeatable=repeatable,
        lag=lag,
        cpu_shares=(cpu_share,),
        words=_failures(record, record.outcome[counted]),
        seconds=_seconds(record, pieces, ttft_ms, counted, warm_s, duration_s),
        invalid=why_invalid(lag, ttft.at(99.0) if ttft else None, (cpu_share,), "send from another machine"),
        ended=record.ended_early,
    )


def _counted(record: GenerationRecord, begin: float, end: float) -> NDArray[np.bool_]:
    """bool [n]: requests that were due in this part of the run; without unfinished ones if it ended early."""
    counted = (record.due >= begin) & (record.due < end) & ~record.again
    return counted & ((record.outcome >= 0) | (not record.ended_early))


def _rates(
    record: GenerationRecord,
    pieces: _Pieces,
    counted: NDArray[np.bool_],
    right: NDArray[np.bool_],
    warm_s: float,
    duration_s: float,
) -> dict[str, Any]:
    """Numbers and rates of requests and tokens, by their fields in a report."""
    came = (pieces.at >= warm_s) & (pieces.at < warm_s + duration_s) & ~record.again[pieces.owner]
    return {
        "requests": int(counted.sum()),
        "right": int(right.sum()),
        "failures": int((counted & ~right).sum()),
        "offered_per_s": int(counted.sum()) / duration_s,
        "rate_per_s": int(right.sum()) / duration_s,
        "tokens_per_s": float(pieces.counts[came].sum()) / duration_s,
        "prompt_tokens_per_s": float(record.prompt_tokens[right].sum()) / duration_s,
    }


def _sizes(
    record: GenerationRecord, requests: TextRequests, counted: NDArray[np.bool_], right: NDArray[np.bool_]
) -> dict[str, Any]:
    """Tokens of prompts and answers, by their fields in a report."""
    sent = record.index[counted]
    return {
        "prompt_asked": Spread.of(requests.prompt[sent]),
        "prompt_found": Spread.of(record.prompt_tokens[right]),
        "output_asked": Spread.of(requests.output[sent]),
        "clipped": int(requests.clipped[sent].sum()),
    }


def _failures(record: GenerationRecord, outcome: NDArray[np.int32]) -> dict[str, int]:
    """The number of failures by message."""
    return {record.failures[code - 1]: int((outcome == code).sum()) for code in np.unique(outcome[outcome > 0])}


def _times(
    record: GenerationRecord,
    pieces: _Pieces,
    right: NDArray[np.bool_],
    ttft_ms: NDArray[np.float64],
    tpot_ms: NDArray[np.float64],
    percents: Sequence[float],
) -> dict[str, Any]:
    """The distributions of a report, by their fields."""
    milliseconds = {
        "ttft": ttft_ms[right],
        "itl": pieces.gap_ms[right[pieces.owner] & ~pieces.first],
        "tpot": tpot_ms[right & ~np.isnan(tpot_ms)],
        "latency": 1e3 * (record.ended - record.due)[right],
        "service": 1e3 * (record.ended - record.sent)[right],
    }
    return {name: times_of(ms, percents) for name, ms in milliseconds.items()}


def _percents(slo: Slo | None) -> tuple[float, ...]:
    return (*slo.percentiles, *slo.ttft, *slo.itl) if slo else ()


def _of_requests(record: GenerationRecord, pieces: _Pieces) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Time to the first token, and of each of the others, in ms; NaN if there is none."""
    ttft, tpot = np.full(len(record.due), np.nan), np.full(len(record.due), np.nan)
    owner = pieces.owner[pieces.first]
    began = pieces.at[pieces.first]
    ttft[owner] = 1e3 * (began - record.due[owner])
    last = record.pieces[record.piece_ends[owner] - 1]
    tokens = np.diff(record.token_ends, prepend=0)[owner]
    several = tokens > 1
    tpot[owner[several]] = 1e3 * ((last - began)[several] / (tokens[several] - 1))
    return ttft, tpot


def _compared(record: GenerationRecord, requests: TextRequests) -> tuple[int, int]:
    """The number of prompts with two right answers, and the number of those whose answers begin differently."""
    tokens_of: dict[tuple[int, int], Counts] = {}
    compared = differing = 0
    for place in np.flatnonzero(record.outcome == 0).tolist():
        index = record.index[place]
        key = int(requests.start[index]), int(requests.words[index])
        tokens = record.tokens_of(place)
        before = tokens_of.setdefault(key, tokens)
        if before is not tokens:
            common = min(len(before), len(tokens))
            compared += 1
            differing += not np.array_equal(before[:common], tokens[:common])
    return compared, differing


def _seconds(
    record: GenerationRecord,
    pieces: _Pieces,
    ttft_ms: NDArray[np.float64],
    counted: NDArray[np.bool_],
    warm_s: float,
    duration_s: float,
) -> tuple[GenerationSecond, ...]:
    right = counted & (record.outcome == 0)
    gaps = right[pieces.owner] & ~pieces.first
    run = ~record.again[pieces.owner]
    seconds = []
    for at_s in np.arange(0.0, duration_s, 1.0).tolist():
        low, high = warm_s + at_s, warm_s + min(at_s + 1.0, duration_s)
        due = counted & (record.due >= low) & (record.due < high)
        came = (pieces.at >= low) & (pieces.at < high)
        good = due & right
        seconds.append(
            GenerationSecond(
                at_s,
                int(due.sum()),
                int(good.sum()),
                int((due & ~right).sum()),
                int(pieces.counts[came & run].sum()),
                *_points(ttft_ms[good]),
                *_points(pieces.gap_ms[came & gaps]),
            )
        )
    return tuple(seconds)


def _points(ms: NDArray[np.float64]) -> tuple[float | None, float | None]:
    if not len(ms):
        return None, None
    p50, p99 = np.percentile(ms, (50, 99), method="inverted_cdf").tolist()
    return p50, p99
