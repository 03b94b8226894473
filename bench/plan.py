"""Simulations of `tritonkit plan` over measurements: the same requests at the same moments."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.processor import on_part, stolen_s
from bench.programs import ROOT
from bench.report import Ratio, Report
from bench.setting import chosen
from tritonkit.perf.load.openloop import Generator, Slo
from tritonkit.perf.plan.measured import OBSERVED
from tritonkit.perf.simulation import Costs, ObservedRun, calibrated, simulate_fleet
from tritonkit.perf.tune.costs import measure_costs, observe, saturated_per_s
from tritonkit.perf.tune.run import Ready, TunePlan, prepared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.setting import Setting

__all__ = ["run"]

LENGTHS = {"sentences": 12.0, "digits": 5.0}
"""Models, and how many times `--seconds` a run lasts: a percentile needs some hundred requests in each of its turns."""
SHARES = (0.5, 0.7, 0.9)
"""Shares of the highest rate of the servers."""
REPLICAS = (1, 2)
OFF = 0.15
_WHAT = {"p50": False, "p99": True, "p99 of all turns as one": False, "answers/s": True}
"""The compared figures, and whether each has to be within that."""


@dataclass(frozen=True)
class _Round:
    """Ratios at each share of the capacity: p50, p99, p99 of all turns as one, answers a second; simulated over
    measured."""

    ratios: dict[float, tuple[float, ...]]
    p99_ms: dict[float, tuple[float, float]]
    most_per_s: float


def run(setting: Setting) -> Report:
    """Latencies and rates that are simulated over those that are measured, of one server and of two."""
    setting.refuse_address()
    ratios: list[Ratio] = []
    for model in chosen("--models", setting.models, LENGTHS):
        for replicas in REPLICAS:
            ratios += _case(setting, model, replicas)
    return Report(
        "plan",
        "simulated over measured: percentiles of the latency and answers a second, at shares of what the servers do at"
        " most, which the runs that the costs come from do not have. Percentiles are those of a typical turn; of all"
        " turns as one the machine's own pauses are part. A server has half of the cores; the load"
        " generator has the other half for one server, and shares all with two",
        ratios,
    )


def _case(setting: Setting, model: str, replicas: int) -> list[Ratio]:
    plan = TunePlan(ROOT, model, Slo({99.0: 1000.0}))
    with contextlib.ExitStack() as stack:
        ready = []
        for replica in range(replicas):
            # A replica has a machine to itself: two on shared cores would slow each other down.
            with on_part(replica, max(REPLICAS)):
                ready.append(stack.enter_context(prepared(plan)))
        addresses = [one.server.address for one in ready]
        if replicas < max(REPLICAS):  # the load generator gets the cores that no server has
            stack.enter_context(on_part(replicas, max(REPLICAS)))
        generator = stack.enter_context(Generator(ROOT, (model,), addresses))
        seconds = setting.seconds * LENGTHS[model]
        before = stolen_s()
        rounds = [_round(generator, ready[0], turn, seconds) for turn in range(setting.rounds)]
        stolen = stolen_s() - before
    servers = "a server" if replicas == 1 else f"{replicas} servers"
    ratios = []
    for share in SHARES:
        name = f"{model}, {servers} at {share:.0%}"
        of_all = np.array([one.ratios[share] for one in rounds])
        tails = np.median([one.p99_ms[share] for one in rounds], axis=0).round(1).tolist()
        for at, (what, bars) in enumerate(_WHAT.items()):
            bound = (1 + OFF, 1 - OFF) if bars else (None, None)
            facts = {"simulated, measured: ms": tails} if what == "p99" else {}
            ratios.append(Ratio(f"{name}: {what}", of_all[:, at].tolist(), *bound, facts))
    ratios[0].facts["at most, requests/s"] = [round(one.most_per_s, 1) for one in rounds]
    ratios[0].facts["seconds of the processors that others of the host took meanwhile"] = round(stolen, 1)
    return ratios


def _round(generator: Generator, ready: Ready, turn: int, seconds: float) -> _Round:
    """Alternate runs for the calibration with other runs, so that a slow minute affects both."""
    replicas = len(generator.addresses)
    batcher, network = ready.now.batcher, ready.spec.network_name
    instances = batcher.instances * replicas
    costs = measure_costs(generator, network, instances, ready.shapes)
    most_per_s = saturated_per_s(generator, network, instances, seconds / 3, turn)
    shares = (*OBSERVED, *SHARES)
    observed = observe(generator, [share * most_per_s for share in shares], seconds, turn)
    runs = dict(zip(shares, observed, strict=True))
    costs = calibrated(costs, batcher, [runs[share] for share in OBSERVED], replicas)
    by_share = {share: _compared(runs[share], ready, costs, replicas) for share in SHARES}
    return _Round(
        {share: ratios for share, (ratios, _) in by_share.items()},
        {share: tails for share, (_, tails) in by_share.items()},
        most_per_s,
    )


def _compared(
    real: ObservedRun, ready: Ready, costs: Costs, replicas: int
) -> tuple[tuple[float, ...], tuple[float, float]]:
    simulated_s = simulate_fleet(
        real.moments, ready.now.batcher, costs, replicas, "round_robin", choice=real.choice
    ).latency_s
    typical = [real.percentiles_s((50, 99), latency_s) for latency_s in (simulated_s, real.latency_s)]
    p50, p99 = typical[0] / typical[1]
    of_all = np.percentile(simulated_s, 99) / np.percentile(real.latency_s, 99)
    rates = [_rate(real.moments + latency_s) for latency_s in (simulated_s, real.latency_s)]
    tails = (1e3 * float(typical[0][1]), 1e3 * float(typical[1][1]))
    return (float(p50), float(p99), float(of_all), rates[0] / rates[1]), tails


def _rate(ends: NDArray[np.float64]) -> float:
    """Answers a second from the first to the last."""
    moments = np.sort(ends)
    return (len(moments) - 1) / float(moments[-1] - moments[0])
