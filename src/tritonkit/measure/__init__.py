"""Measuring a served model under load: requests with known answers, a report, limits to hold it to.

    from tritonkit.measure import LoadPlan, run_load

    outcome = run_load(LoadPlan(root, ("digits",), "127.0.0.1:8001", users=20, duration_s=20))
    outcome.report.series[0].p95_ms, outcome.missed

The load itself comes from Locust in a separate process: what it changes in Python's sockets and
threads stays there. Importing this room loads neither Locust nor gRPC.
"""

from tritonkit.measure.histogram import Histogram
from tritonkit.measure.load import LoadPlan, Outcome, run_load
from tritonkit.measure.profile import RequestProfile, Span, profile_requests
from tritonkit.measure.recorder import Recorder
from tritonkit.measure.report import Report, Series
from tritonkit.measure.shapes import SHAPES, users_at
from tritonkit.measure.thresholds import Limits, Thresholds, judge, limits_for, read_thresholds
from tritonkit.measure.workload import Request, Workload, expect_embedding, expect_label, expect_like

__all__ = [
    "SHAPES",
    "Histogram",
    "Limits",
    "LoadPlan",
    "Outcome",
    "Recorder",
    "Report",
    "Request",
    "RequestProfile",
    "Series",
    "Span",
    "Thresholds",
    "Workload",
    "expect_embedding",
    "expect_label",
    "expect_like",
    "judge",
    "limits_for",
    "profile_requests",
    "read_thresholds",
    "run_load",
    "users_at",
]
