"""Servers as a simulation: Triton's batcher, what runs take, replicas behind a balancer. Nothing here measures.

`batcher` has Triton's rules, `costs` what runs take, `calibration` holds them against real runs, `replica` is one
server, `fleet` many behind a balancer.
"""

from tritonkit.simulation.batcher import Batcher
from tritonkit.simulation.calibration import Observation, calibrated, misfit
from tritonkit.simulation.costs import Costs, fit
from tritonkit.simulation.fleet import BALANCING, Balancing, Outage, simulate_fleet
from tritonkit.simulation.replica import Simulated, highest_rate, simulate, simulate_alone

__all__ = [
    "BALANCING",
    "Balancing",
    "Batcher",
    "Costs",
    "Observation",
    "Outage",
    "Simulated",
    "calibrated",
    "fit",
    "highest_rate",
    "misfit",
    "simulate",
    "simulate_alone",
    "simulate_fleet",
]
