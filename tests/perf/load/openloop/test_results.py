"""The report of a run: latency since requests were due, and the generator's own figures."""

from __future__ import annotations

import numpy as np
import pytest

from tritonkit.perf.load import Histogram
from tritonkit.perf.load.openloop import Slo
from tritonkit.perf.load.openloop.results import OpenSeries, judge_slo, series_of, times_of, why_invalid
from tritonkit.perf.load.openloop.sender import Record


def series(
    due: list[float],
    sent: list[float],
    answered: list[float],
    outcome: list[int],
    slo: Slo | None = None,
    duration_s: float = 4.0,
) -> OpenSeries:
    """One model's requests, given in seconds."""
    record = Record(
        np.array(due),
        np.array(sent),
        np.array(answered),
        np.array(outcome, np.int32),
        ("wrong label", "DeadlineExceeded"),
        0.0,
    )
    return series_of("net", record, np.ones(len(due), bool), duration_s, slo)


def test_latency_counts_from_when_a_request_was_due() -> None:
    """The generator's delay is part of the latency, and not of the service's time."""
    judged = series([0, 1], [0.5, 1], [0.6, 1.2], [0, 0])
    assert judged.latency
    assert judged.service
    assert judged.latency.largest == pytest.approx(600)
    assert judged.service.largest == pytest.approx(200)


def test_only_right_answers_have_times() -> None:
    """An immediate refusal makes no server look quick; failures are counted by their messages."""
    judged = series([0, 1, 2, 3], [0, 1, 2, 3], [0.1, 1.001, 2.001, 3.001], [0, 1, 1, 2])
    assert judged.latency
    assert (judged.requests, judged.right, judged.failures) == (4, 1, 3)
    assert judged.latency.at(50) == pytest.approx(100)
    assert judged.words == {"wrong label": 2, "DeadlineExceeded": 1}
    assert judged.rate_per_s == pytest.approx(0.25)
    assert judged.error_rate == pytest.approx(0.75)


def test_seconds_are_those_in_which_requests_were_due() -> None:
    """A slow answer shows where its request belongs; what came is counted where it came."""
    judged = series([0.1, 0.2, 2.5], [0.1, 0.2, 2.5], [0.3, 1.2, 2.6], [0, 0, 0])
    assert [(s.due, s.answers) for s in judged.seconds] == [(2, 1), (0, 1), (1, 1), (0, 0)]
    assert judged.seconds[0].p99_ms == pytest.approx(1000, rel=0.05)
    assert judged.seconds[1].p50_ms is None
    short = series([0.1], [0.1], [0.2], [0], duration_s=2.2).seconds
    assert [s.at_s for s in short] == [0.0, 1.0]


def test_percentiles_have_intervals_that_hold() -> None:
    """Some 95 of 100 intervals from 300 samples of a known distribution hold the true percentile."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        times = times_of(rng.exponential(10.0, 300))
        assert times
        estimate = times.percentiles[90.0]
        assert estimate.low is not None
        assert estimate.high is not None
        hits += estimate.low <= 10 * np.log(10) <= estimate.high
    assert 180 <= hits <= 199


def test_too_few_samples_have_no_bounds() -> None:
    """Ten answers do not bound the true p99 from above."""
    times = times_of(np.arange(1.0, 11.0))
    assert times
    assert times.at(99) == 10
    assert times.percentiles[99.0].high is None
    assert times_of(np.zeros(0)) is None


def test_a_target_is_judged_by_its_own_percentile() -> None:
    """Also one that is in no table; a failure misses where none is allowed."""
    moments = [k / 100 for k in range(100)]
    answered = [due + (0.001 if k < 97 else 0.5) for k, due in enumerate(moments)]
    slo = Slo({97.0: 10.0, 98.0: 10.0})
    judged = series(moments, moments, answered, [0] * 100, slo)
    assert judge_slo(judged, slo) == ["net: p98 500.00 ms, at most 10 ms"]
    broken = series([0, 1], [0, 1], [0.001, 1.001], [0, 2], slo)
    assert judge_slo(broken, slo) == [
        "net: 50.000% of the requests failed, at most 0.000% (1 of 2; first: DeadlineExceeded)"
    ]
    nothing = series([0], [0], [1], [2], slo)
    assert "net: no right answer" in judge_slo(nothing, slo)


def test_a_late_generator_makes_a_run_invalid() -> None:
    """A run is invalid if it is late relative to the measured latency, or has no processor time left."""
    lag = times_of(np.full(100, 3.0))
    assert lag
    assert why_invalid(lag, 40.0, [0.5]) == ()
    (late,) = why_invalid(lag, 10.0, [0.5])
    assert "3.00 ms late" in late
    (busy,) = why_invalid(lag, 40.0, [0.5, 0.97])
    assert "process 2 of the generator used 97%" in busy


def test_a_histogram_of_an_array_is_that_of_its_numbers() -> None:
    """Counting all together or one by one gives the same."""
    times = np.random.default_rng(1).lognormal(1, 2, 500)
    one = Histogram()
    for ms in times:
        one.add(float(ms))
    at_once = Histogram.of(times)
    assert at_once.counts() == one.counts()
    assert at_once.largest_ms == one.largest_ms
    assert Histogram.of(np.zeros(0)).counts() == []
    for lower, upper, _ in at_once.edges():
        assert upper / lower == pytest.approx(1.01)
