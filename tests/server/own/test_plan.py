"""`tritonkit plan` on a real Triton: one replica is measured, and the plan is made again from its file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import tritonkit
from tritonkit.perf.plan import read_measured


def test_a_model_is_measured_kept_and_planned_with(tmp_path: Path) -> None:
    """The file plans again without a server, to the same figures."""
    file = tmp_path / "digits.json"
    options = ["--rate", "20000", "--slo", "p99=2s", "--price", "1/h", "--json"]
    first = tritonkit("plan", "digits", *options, "--save", str(file))
    assert first.returncode == 0, first.stderr
    facts = json.loads(first.stdout)
    assert facts["replicas"] > 1
    assert facts["start_s"] > 0
    measured = read_measured(file)
    assert measured.now in (p for p in [measured.now] if p.group in measured.costs)
    again = tritonkit("plan", "--measured", str(file), *options)
    assert json.loads(again.stdout) == facts
