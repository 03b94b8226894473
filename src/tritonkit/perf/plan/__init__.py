"""The number of replicas that a rate needs, and their cost: simulated from measurements of one replica.

`measured` is one replica and its file, `sizing` the fleet that holds a target, `traffic` a day's rate, `scaling` a day
under a rule of autoscaling, `price` the price of machines, `functions` the same requests as calls of a function,
`fleet_plan` the plan, `run` the way to it, `page` its report.
"""

from tritonkit.perf.plan.fleet_plan import Demand, Failure, Plan, Saving
from tritonkit.perf.plan.functions import FunctionPlan, FunctionPrice
from tritonkit.perf.plan.measured import Measured, measure, read_measured
from tritonkit.perf.plan.price import Price, parse_price
from tritonkit.perf.plan.run import make_plan, size_measured
from tritonkit.perf.plan.scaling import Day, Minute, ScalingRule, Terms, simulate_day
from tritonkit.perf.plan.sizing import Curve, Fleet, Sized, curve, size
from tritonkit.perf.plan.traffic import Traffic, of_shape, read_traffic

__all__ = [
    "Curve",
    "Day",
    "Demand",
    "Failure",
    "Fleet",
    "FunctionPlan",
    "FunctionPrice",
    "Measured",
    "Minute",
    "Plan",
    "Price",
    "Saving",
    "ScalingRule",
    "Sized",
    "Terms",
    "Traffic",
    "curve",
    "make_plan",
    "measure",
    "of_shape",
    "parse_price",
    "read_measured",
    "read_traffic",
    "simulate_day",
    "size",
    "size_measured",
]
