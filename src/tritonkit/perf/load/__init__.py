"""Measuring a served model under load: requests with known answers, a report, limits to hold it to.

    from tritonkit.perf.load import LoadPlan, run_load

    outcome = run_load(LoadPlan(root, ("digits",), "127.0.0.1:8001", users=20, duration_s=20))
    outcome.report.series[0].p95_ms, outcome.missed

The load itself comes from Locust in a separate process, so that its changes to Python's sockets and
threads stay there. Importing this room loads neither Locust nor gRPC.
"""

from tritonkit.perf.load.histogram import Histogram
from tritonkit.perf.load.locust_run import LoadOutcome, LoadPlan, run_load
from tritonkit.perf.load.profile import RequestProfile, Span, profile_requests
from tritonkit.perf.load.recorder import Recorder
from tritonkit.perf.load.report import LoadSeries, Report
from tritonkit.perf.load.shapes import SHAPES, users_at
from tritonkit.perf.load.thresholds import Limits, Thresholds, judge, limits_for, read_thresholds
from tritonkit.perf.load.workload import Request, Workload, expect_embedding, expect_label, expect_like

__all__ = [
    "SHAPES",
    "Histogram",
    "Limits",
    "LoadOutcome",
    "LoadPlan",
    "LoadSeries",
    "Recorder",
    "Report",
    "Request",
    "RequestProfile",
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
