"""Costs of a replica that is measured on a real Triton: they explain what was seen of it."""

from __future__ import annotations

import numpy as np

from tests.conftest import PROJECT
from tritonkit.perf.load.openloop import Slo
from tritonkit.perf.simulation import calibrated, misfit
from tritonkit.perf.tune.costs import measure_costs, observe, saturated_per_s
from tritonkit.perf.tune.run import TunePlan, prepared


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
    better = calibrated(costs, batcher, runs)
    assert misfit(better, batcher, runs) <= misfit(costs, batcher, runs)
