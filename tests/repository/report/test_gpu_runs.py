"""Figures of GPUs under load in the report of a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.repository.report.figures import MACHINE, crowd
from tritonkit.repository.report import render
from tritonkit.repository.report.gpu_runs import CardFigures, GpuRun, gpu_runs, keep_gpu_run

CARD = CardFigures("NVIDIA H100 80GB HBM3 (GPU-8ba79cd6)", 0.76, 5.6 * (1 << 30), 79.6 * (1 << 30), 577.0)
RUN = GpuRun("net", "load", "2026-11-27 12:00", 13083.4, (CARD,), 0.0441)


def test_the_last_run_of_a_command_and_card_is_kept(tmp_path: Path) -> None:
    """Other models, commands and cards have theirs."""
    other = replace(RUN, cards=(replace(CARD, card="NVIDIA L4"),))
    runs = [RUN, replace(RUN, model="words"), replace(RUN, by="tune"), other, replace(RUN, rate_per_s=9.0)]
    for run in runs:
        keep_gpu_run(tmp_path, run)
    assert gpu_runs(tmp_path, "net") == (runs[2], other, runs[4])
    assert gpu_runs(tmp_path, "words") == (runs[1],)


@pytest.mark.parametrize("text", ["", "[1]", '[{"model": "net"}]', "{}"])
def test_a_damaged_file_is_no_run(tmp_path: Path, text: str) -> None:
    """It is replaced by the next run."""
    (tmp_path / ".tritonkit").mkdir()
    (tmp_path / ".tritonkit" / "gpu_runs.json").write_text(text)
    assert gpu_runs(tmp_path, "net") == ()
    keep_gpu_run(tmp_path, RUN)
    assert gpu_runs(tmp_path, "net") == (RUN,)


def test_a_folder_that_cannot_be_written_is_left(tmp_path: Path) -> None:
    """A load is not lost for it."""
    (tmp_path / ".tritonkit").write_text("a file")
    keep_gpu_run(tmp_path, RUN)
    assert gpu_runs(tmp_path, "net") == ()


def test_the_report_has_use_memory_and_energy_with_the_card(tmp_path: Path) -> None:
    """On the page and as JSON; without a run the page has no such section."""
    report = crowd(tmp_path)
    assert "On GPUs" not in render([report], MACHINE, "today")
    with_runs = replace(report, gpu_runs=(RUN, replace(RUN, by="<b>", energy_per_request_j=None)))
    page = render([with_runs], MACHINE, "today")
    line = (
        "13,083.4 requests/s, 0.0441 J a request: NVIDIA H100 80GB HBM3 (GPU-8ba79cd6): in use 76% of the time,"
        " 5.6 of 79.6 GiB at most, 577 W on average (load, 2026-11-27 12:00)"
    )
    assert str(RUN) == line
    assert line in page
    assert "(&lt;b&gt;, 2026" in page
    facts = json.loads(json.dumps(with_runs.to_dict()))["gpu_runs"][0]
    assert facts["cards"][0]["busy"] == 0.76
    assert facts["energy_per_request_j"] == 0.0441
