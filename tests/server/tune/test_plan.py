"""A plan from a real Triton: one replica is measured, its costs explain what was seen of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.cli.running import tritonkit
from tests.conftest import PROJECT
from tritonkit.perf.load.openloop import Slo
from tritonkit.perf.plan import read_measured
from tritonkit.perf.simulation import calibrated, misfit
from tritonkit.perf.tune.costs import measure_costs, observe, saturated_per_s
from tritonkit.perf.tune.run import TunePlan, prepared


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


def test_costs_of_a_real_server_are_put_right_by_its_runs() -> None:
    """The fit gets closer to what was seen; all requests were answered, each counted once."""
    with prepared(TunePlan(PROJECT, "digits", Slo({99.0: 1000.0}))) as ready:
        network, batcher = ready.spec.network_name, ready.now.batcher
        costs = measure_costs(ready.generator, network, batcher.instances, ready.shapes)
        most_per_s = saturated_per_s(ready.generator, network, batcher.instances, 0.5)
        runs = observe(ready.generator, [0.4 * most_per_s, 0.7 * most_per_s], 3.0)
    assert costs.run_s(1) > 0
    assert costs.around_s >= 0
    assert most_per_s > 0
    for run in runs:
        assert (run.latency_s > 0).all()
        assert (np.diff(run.moments) >= 0).all()
    found = calibrated(costs, batcher, runs)
    assert misfit(found, batcher, runs) <= misfit(costs, batcher, runs)
