"""`tritonkit tune` on a real Triton, shortly: measured, written, known the next time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.running import tritonkit
from tests.conftest import PROJECT


def test_a_short_search_gives_a_way_that_holds(root: Path, tmp_path: Path) -> None:
    """JSON, a page, and what was measured in a file of the project, which holds a target that any machine holds."""
    shutil.copytree(PROJECT / "models" / "digits", root / "models" / "digits")
    (root / ".venv-server").symlink_to(PROJECT / ".venv-server")
    (root / ".tritonkit").mkdir()
    (root / ".tritonkit" / "cache").symlink_to(PROJECT / ".tritonkit" / "cache")
    search = ("--slo", "p50=10s", "--budget", "15s", "--trial", "1s")
    done = tritonkit(
        *("tune", "digits", *search, "--json", "--root", str(root), "--report", str(tmp_path / "out")),
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["best"]["rate_per_s"] > 0
    assert facts["measurements"] >= sum(len(each["trials"]) for each in facts["evaluations"]) > 0
    assert "requests/s hold p50=10s" in (tmp_path / "out" / "report.html").read_text()
    state = json.loads((root / ".tritonkit" / "tune" / "digits.json").read_text())
    assert len(state["evaluations"]) == len(facts["evaluations"])
