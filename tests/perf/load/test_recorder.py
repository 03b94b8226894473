"""Counting requests, here and from other processes."""

from __future__ import annotations

import json

from tritonkit.perf.load import Recorder, Report


def recorded() -> Recorder:
    """Three right answers and a wrong one over gRPC, one right over HTTP."""
    recorder = Recorder()
    for ms in (1.0, 2.0, 4.0):
        recorder.add("grpc", "digits", ms, 15)
    recorder.add("grpc", "digits", 0.1, 0, "label 3, expected 8")
    recorder.add("http", "digits", 9.0, 15)
    return recorder


def test_a_report_has_a_series_for_each_protocol_and_model() -> None:
    """Rates count right answers; times are those of right answers alone."""
    grpc, http = recorded().report(duration_s=2.0).series
    assert (grpc.protocol, grpc.requests, grpc.failures, grpc.rate_per_s) == ("grpc", 4, 1, 1.5)
    assert grpc.error_rate == 0.25
    assert grpc.first_failure == "label 3, expected 8"
    assert grpc.p50_ms is not None
    assert 1.97 < grpc.p50_ms < 2.03
    assert (grpc.largest_ms, grpc.mean_bytes) == (4.0, 15.0)
    assert (http.requests, http.failures, http.error_rate) == (1, 0, 0.0)


def test_parts_of_several_workers_add_up() -> None:
    """The counts that `take` gives survive JSON, and two of them add up."""
    master = Recorder()
    for _ in range(2):
        worker = recorded()
        master.merge(json.loads(json.dumps(worker.take())))
        assert worker.take() == []
    once, twice = recorded().report(1.0).series[0], master.report(1.0).series[0]
    assert twice.requests == 2 * once.requests
    assert twice.failures == 2 * once.failures
    assert twice.p50_ms == once.p50_ms
    assert twice.first_failure == once.first_failure


def test_only_failures_have_no_times() -> None:
    """A model that never answered right has no percentile, and an error rate of 1."""
    recorder = Recorder()
    recorder.add("grpc", "digits", 0.1, 0, "gone")
    (series,) = recorder.report(1.0).series
    assert (series.p50_ms, series.largest_ms, series.mean_bytes) == (None, None, None)
    assert (series.error_rate, series.rate_per_s) == (1.0, 0.0)


def test_a_report_survives_json() -> None:
    """A file written by one process is the same value in another."""
    report = recorded().report(3.0)
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
