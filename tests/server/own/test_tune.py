"""`tritonkit tune` on a real Triton, until one way of serving has been measured."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import PROJECT
from tests.server.projects import share_cache
from tests.waiting import PATIENCE_S


def a_way_holds(root: Path) -> bool:
    """Whether a search has found a way of serving that holds its target."""
    return any(evaluation["rate_per_s"] > 0 for evaluation in evaluations(root))


def evaluations(root: Path) -> list[Any]:
    """The ways of serving that a search has measured so far."""
    file = root / ".tritonkit" / "tune" / "digits.json"
    measured: list[Any] = json.loads(file.read_text())["evaluations"] if file.exists() else []
    return measured


def test_a_search_that_is_ended_has_the_best_so_far(root: Path, tmp_path: Path) -> None:
    """The way that is served now holds a target that any machine holds; it is in JSON, the page and the state."""
    shutil.copytree(PROJECT / "models" / "digits", root / "models" / "digits")
    (root / ".venv-server").symlink_to(PROJECT / ".venv-server")
    share_cache(root)
    search = ("--objective", "cost", "--rate", "20", "--slo", "p50=10s", "--budget", "10min", "--trial", "1s")
    output = ("--json", "--root", str(root), "--report", str(tmp_path / "out"))
    command = [sys.executable, "-m", "tritonkit.cli", "tune", "digits", *search, *output]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr
        while not a_way_holds(root):
            assert process.stderr.readline(), "it ended before"
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode in (0, 130), err
    facts = json.loads(out)
    assert facts["best"]["rate_per_s"] == 20
    assert 0 < facts["best"]["tail_ms"] <= 10_000
    assert facts["measurements"] >= sum(len(evaluation["trials"]) for evaluation in facts["evaluations"]) > 0
    assert "processor a request" in (tmp_path / "out" / "report.html").read_text()
    assert len(evaluations(root)) == len(facts["evaluations"])
