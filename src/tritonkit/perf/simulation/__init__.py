"""Servers as a simulation: Triton's batcher, the costs of runs, replicas behind a balancer. Nothing here measures.

`batcher` has Triton's rules, `costs` the costs of runs, `calibration` fits them to real runs, `replica` is one
server, `fleet` many behind a balancer.
"""

from tritonkit.perf.simulation.batcher import SimulatedBatcher
from tritonkit.perf.simulation.calibration import ObservedRun, calibrated, misfit
from tritonkit.perf.simulation.costs import Costs, fit
from tritonkit.perf.simulation.fleet import BALANCING, Balancing, Outage, simulate_fleet
from tritonkit.perf.simulation.replica import Simulated, highest_rate, simulate, simulate_alone

__all__ = [
    "BALANCING",
    "Balancing",
    "Costs",
    "ObservedRun",
    "Outage",
    "Simulated",
    "SimulatedBatcher",
    "calibrated",
    "fit",
    "highest_rate",
    "misfit",
    "simulate",
    "simulate_alone",
    "simulate_fleet",
]
