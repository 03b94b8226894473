"""Open-loop load: requests leave at their moments, whatever the server does.

from tritonkit.perf.load.openloop import Generator, OpenLoad, find_rate, parse_slo

with Generator(root, ("digits",), ("127.0.0.1:8001",)) as generator:
    report = generator.run(OpenLoad(rate_per_s=500, duration_s=30))
    report.series[0].latency.at(99)  # ms
    find_rate(generator, parse_slo(["p99=20ms"])).rate_per_s
"""

from tritonkit.perf.load.openloop.arrivals import Arrivals, draw, read_trace
from tritonkit.perf.load.openloop.find_rate import RateSearch, RateTrial, find_rate
from tritonkit.perf.load.openloop.page import counters_csv, page, run_text, seconds_csv
from tritonkit.perf.load.openloop.record import INTERRUPTED, Record
from tritonkit.perf.load.openloop.results import Answers, Interval, OpenReport, OpenSeries, Second, Times
from tritonkit.perf.load.openloop.run import Generator, OpenLoad, moments_of
from tritonkit.perf.load.openloop.slo import Slo, parse_slo

__all__ = [
    "INTERRUPTED",
    "Answers",
    "Arrivals",
    "Generator",
    "Interval",
    "OpenLoad",
    "OpenReport",
    "OpenSeries",
    "RateSearch",
    "RateTrial",
    "Record",
    "Second",
    "Slo",
    "Times",
    "counters_csv",
    "draw",
    "find_rate",
    "moments_of",
    "page",
    "parse_slo",
    "read_trace",
    "run_text",
    "seconds_csv",
]
