"""Arrivals at a rate as one model's figures: requests, streams, or whole sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tritonkit.perf.load.kinds import CALL, SEQUENCE, STREAM, Kind
from tritonkit.perf.load.openloop.record import Record
from tritonkit.perf.load.openloop.results import Answers, OpenSeries, Times, series_of, times_of
from tritonkit.perf.load.openloop.slo import Slo

__all__ = ["UNITS", "named_times", "unit_series", "whole_sequences"]

UNITS: dict[Kind, str] = {CALL: "requests", STREAM: "requests", SEQUENCE: "sequences"}
"""The unit of the rate, by a model's kind."""


def unit_series(
    model: str, kind: Kind, calls: int, record: Record, chosen: NDArray[np.bool_], duration_s: float, slo: Slo | None
) -> OpenSeries:
    """The results of one model's chosen requests of a run; they include all calls of a sequence or none.

    Args:
        calls: the number of calls in a sequence.
    """
    series = series_of(model, record, chosen, duration_s, slo)
    if record.pieces is None or kind == CALL:
        return series
    right, also = chosen & (record.outcome == 0), tuple(slo.percentiles) if slo else ()
    if kind == STREAM:
        count = int(record.pieces.replies[right].sum())
        first = times_of(1e3 * (record.pieces.first - record.intended)[right], also)
        return replace(series, answers=Answers(1, count, count / duration_s, first))
    is_first = record.of == np.arange(len(record.of))
    first = times_of(1e3 * (record.answered - record.intended)[right & is_first], also)
    whole = whole_sequences(record, chosen, calls)
    of_sequences = series_of(model, whole, np.ones(len(whole.sent), np.bool_), duration_s, slo)
    # Calls that became due after the run's last second belong to none of its seconds.
    timely = series_of(model, record, chosen & (record.intended < duration_s), duration_s, slo)
    return replace(
        of_sequences,
        latency=series.latency,
        service=series.service,
        histogram=series.histogram,
        seconds=timely.seconds,
        unit=UNITS[kind],
        answers=Answers(calls, series.right, series.right / duration_s, first, of_sequences.latency),
    )


def whole_sequences(record: Record, chosen: NDArray[np.bool_], calls: int) -> Record:
    """A record with one line for each sequence: from its first call to the answer of its last. It is right if all its
    calls are. Sequences that the end of the run cut short are left out.
    """
    firsts = np.flatnonzero(chosen & (record.of == np.arange(len(record.of))))
    place = np.zeros(len(record.of), np.int64)
    place[firsts] = np.arange(len(firsts))
    own = place[record.of[chosen]]
    outcome = np.full(len(firsts), -1, np.int32)
    np.maximum.at(outcome, own, record.outcome[chosen])
    last = np.full(len(firsts), -np.inf)
    np.fmax.at(last, own, record.answered[chosen])
    unfinished = (outcome == 0) & (np.bincount(own, minlength=len(firsts)) < calls)
    kept = ~unfinished
    return Record(
        record.intended[firsts][kept],
        record.sent[firsts][kept],
        last[kept],
        outcome[kept],
        record.failures,
        record.cpu_s,
        record.ended,
    )


def named_times(series: OpenSeries) -> list[tuple[str, str, Times | None]]:
    """All times of a series, each with a short name and a description of its begin and end."""
    answers = series.answers
    if answers is None:
        return [("due", "from when it was due", series.latency), ("sent", "from when it was sent", series.service)]
    if series.unit != UNITS[SEQUENCE]:
        return [
            ("last reply", "to the last reply, from when it was due", series.latency),
            ("from sent", "to the last reply, from when it was sent", series.service),
            ("first reply", "to the first reply, from when it was due", answers.first),
        ]
    return [
        ("each call", "each call, from when it could be sent", series.latency),
        ("from sent", "each call, from when it was sent", series.service),
        ("first call", "the first call, from when its sequence was due", answers.first),
        ("sequence", "all calls, from when their sequence was due", answers.whole),
    ]
