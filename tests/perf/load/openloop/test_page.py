"""The page about an open-loop run: what it says, and that nothing from outside is markup."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.perf.load.gpu import GPU, POWER_W, looks_of_run
from tritonkit.perf.load.gpu import gpu_report
from tritonkit.perf.load.openloop import (
    OpenReport,
    RateSearch,
    RateTrial,
    Slo,
    counters_csv,
    page,
    run_text,
    seconds_csv,
)
from tritonkit.perf.load.openloop.results import judge_slo, series_of, times_of
from tritonkit.perf.load.openloop.sender import Record
from tritonkit.repository.report import Machine

MACHINE = Machine("a processor", 2, "Linux")
SLO = Slo({99.0: 20.0})


def report(words: str = "<b>wrong</b>", right: bool = True) -> OpenReport:
    """Two seconds of a hundred requests, the last of which failed; none right where asked."""
    due = np.arange(0, 2, 0.02)
    outcome = np.zeros(100, np.int32) if right else np.ones(100, np.int32)
    outcome[-1] = 1
    record = Record(due, due + 1e-4, due + 0.01, outcome, (words,), 0.1)
    series = series_of("net", record, np.ones(100, bool), 2.0, SLO)
    lag = times_of(1e3 * (record.sent - record.intended))
    assert lag
    counters = tuple(
        {
            "model": "net",
            "at_s": k,
            "until_s": k + 1,
            "requests": 50,
            "items": 50,
            "runs": 25,
            "failures": 0,
            "batch": 2.0,
            "queue_ms": 1.5,
            "compute_ms": 2.0,
        }
        for k in range(2)
    )
    return OpenReport(2.0, (series,), lag, (0.05,), missed=tuple(judge_slo(series, SLO)), counters=counters)


def test_the_page_says_what_was_seen() -> None:
    """Verdict, figures, five plots, the failure's words as text, and how to do it again."""
    text = page(report(), run_text(report(), SLO), MACHINE, "today", title="net", slo=SLO, command="tritonkit load net")
    assert "Missed: net: 1.000% of the requests failed" in text
    assert text.count("<svg") == 5
    assert "p99 target 20 ms" in text
    assert "1 × &lt;b&gt;wrong&lt;/b&gt;" in text
    assert "tritonkit load net" in text
    assert "http" not in text.replace("http://www.w3.org", "")


def test_gpus_have_a_section_of_their_own() -> None:
    """Figures and two plots; without GPUs there is no such section."""
    gpu = gpu_report({GPU: looks_of_run(2)}, 0.0, 2.0, 99)
    without = page(report(), run_text(report()), MACHINE, "today", title="net")
    text = page(replace(report(), gpu=gpu), run_text(report()), MACHINE, "today", title="net")
    assert "GPU" not in without
    assert f"{GPU}: in use 76% of the time" in text
    assert text.count("<svg") == without.count("<svg") + 2
    assert "gpu" not in report().to_dict()
    assert replace(report(), gpu=gpu).to_dict()["gpu"]["power_w"] == POWER_W


def test_a_page_without_a_right_answer() -> None:
    """No latency is drawn; rates and counters are."""
    text = page(report(right=False), run_text(report(right=False)), MACHINE, "today", title="net")
    assert "Latency over time" not in text
    assert "Batch size" in text


def test_the_page_of_a_search_has_its_trials() -> None:
    """In their order, with what became of each."""
    trials = (RateTrial(10.0, 5.0, True, 9.0, 0.0, True), RateTrial(20.0, 0.3, False, 90.0, 0.0, False))
    search = RateSearch(SLO, 10.0, 10.0, 20.0, "generator", trials, "", report())
    text = page(report(), run_text(report(), SLO), MACHINE, "today", title="net", slo=SLO, search=search)
    assert "10.0 requests/s hold p99=20ms; all runs held at 10.0/s and none at 20.0/s" in text
    assert "the load generator was late" in text
    assert text.index("holds</span>") < text.index("missed</span>")
    assert "generator late" in text


def test_csv_has_a_line_for_each_second() -> None:
    """With names in the first."""
    lines = seconds_csv(report()).splitlines()
    assert lines[0].startswith("model,at_s,due,right,failed,answers,p50_ms")
    assert [line.split(",")[:5] for line in lines[1:]] == [
        ["net", "0.0", "50", "50", "0"],
        ["net", "1.0", "50", "49", "1"],
    ]
    assert len(counters_csv(report()).splitlines()) == 3
