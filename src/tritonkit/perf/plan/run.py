"""The way to a plan: replicas, cost, savings and a day of scaling, from measurements of one replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tritonkit.errors import UsageError
from tritonkit.perf.load.openloop import Slo, draw
from tritonkit.perf.plan.fleet_plan import Demand, Failure, Plan, Saving
from tritonkit.perf.plan.functions import FunctionPlan, plan_function
from tritonkit.perf.plan.measured import Measured
from tritonkit.perf.plan.scaling import Day, Metric, ScalingRule, Terms, simulate_day
from tritonkit.perf.plan.sizing import Curve, Fleet, FleetRun, Sized, alone, curve, size
from tritonkit.perf.plan.traffic import Traffic, of_shape
from tritonkit.perf.simulation import BALANCING, Balancing, Outage, simulate_fleet
from tritonkit.perf.tune.space import Point, Space

__all__ = ["make_plan", "size_measured"]

_RATE = tuple(k / 20 for k in range(10, 21, 2))
_UTILIZATION = tuple(k / 100 for k in range(30, 100, 10))
_QUEUE_TIME = (0.05, 0.1, 0.2, 0.4)
_SCHEDULE = (0.8, 0.9, 1.0)
_TARGETS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0)
"""Multiples of the target at which the cost is shown."""
_DELAYS_US = (0, 1000, 5000)
_BETTER = 1.05
"""The factor by which a way must hold more than the best before it."""
_LOOK_REPLICAS, _LOOK_REQUESTS = 4, 4000
_COMPARED = 8000
"""Requests of each simulation that is only for comparison."""
_OUTAGE_S = 60.0
_LEAST_OUTAGE, _MOST_OUTAGE = 3000, 60_000
"""Requests of a simulated outage, before and after it included."""


def make_plan(measured: Measured, demand: Demand, say: Callable[[str], None] = lambda _: None) -> Plan:
    """Size the fleet, run its days and compare.

    Raises:
        UsageError: no number of replicas holds the target.
    """
    point = measured.now
    fleet = _fleet(measured, point, demand)
    if demand.price is not None:
        demand = replace(demand, price=demand.price.of_replica(measured.gpus))
    say("one replica of a fleet at each rate")
    of_one = curve(fleet)
    held = of_one.highest_rate(demand.slo)
    rate = demand.traffic.most_per_s
    say(f"the number that holds {demand.slo} at {rate:g}/s")
    sized = _sized(measured, fleet, rate, demand.slo, held)
    replicas = sized.replicas + demand.spare
    start_s = measured.start_s if demand.start_s is None else demand.start_s
    percent, target_ms = demand.slo.tightest
    # A small fleet carries less than its proportional share of a large one, so each replica counts with its rate at
    # the peak.
    of_each = rate / sized.replicas if sized.replicas > 1 else max(held, rate)
    terms = Terms(percent, target_ms, of_each, replicas, demand.spare, start_s)
    say("a day under each rule")
    days = _days(demand.traffic, of_one, terms)
    say("the replicas that other ways of serving would need")
    best, of_best = _best_way(measured, demand, of_one)
    return Plan(
        measured,
        demand,
        point,
        held,
        sized,
        replicas,
        start_s,
        _failure(fleet, rate, replicas, percent),
        days,
        _savings(measured, demand, fleet, sized, days, (best, of_best.highest_rate(demand.slo)), of_one),
        _by_target(demand, of_one, of_best),
        best,
        _function(demand, fleet, held),
        _simulated(fleet, demand.slo),
    )


def _simulated(fleet: Fleet, slo: Slo) -> float:
    """The rate that a replica would hold if only the costs of its runs bounded it; 0 if they do."""
    return 0.0 if fleet.trusted == 1.0 else curve(replace(fleet, trusted=1.0)).highest_rate(slo)


def size_measured(measured: Measured, rate_per_s: float, slo: Slo, where: str = "--slo") -> Sized:
    """The number of replicas that hold a target at a rate, without spare ones: the same figure as a plan's.

    Args:
        where: the option or key that gave the target.

    Raises:
        UsageError: no number of replicas holds the target.
    """
    fleet = _fleet(measured, measured.now, Demand(of_shape("steady", rate_per_s), slo))
    return _sized(measured, fleet, rate_per_s, slo, curve(fleet).highest_rate(slo), where)


def _sized(measured: Measured, fleet: Fleet, rate_per_s: float, slo: Slo, held: float, where: str = "--slo") -> Sized:
    sized = size(fleet, rate_per_s, slo, near=int(_count(rate_per_s, held))) if held else None
    if sized is None:
        raise _out_of_reach(measured, fleet, slo, where)
    return sized


def _function(demand: Demand, fleet: Fleet, held: float) -> FunctionPlan | None:
    if demand.function is None or demand.price is None:
        return None
    return plan_function(
        demand.function,
        1000 * float(np.mean(alone(fleet).latency_s)),
        demand.traffic.mean_per_s,
        replica_per_s=held,
        spare=demand.spare,
        replica_per_hour=demand.price.per_hour,
    )


def _fleet(measured: Measured, point: Point, demand: Demand) -> Fleet:
    return Fleet(
        point.batcher, measured.costs[point.group], demand.balancing, demand.arrivals, trusted=_trusted(measured)
    )


def _trusted(measured: Measured) -> float:
    """The share of the simulated capacity that the server was seen to reach.

    The costs are those of the network's runs; steps, the wire and the generator's cores bound a server too. Their
    effect on the present way of serving is assumed for all others.
    """
    now = measured.now
    simulated = measured.costs[now.group].capacity(now.batcher)
    return min(1.0, measured.most_per_s / simulated) if measured.most_per_s else 1.0


def _out_of_reach(measured: Measured, fleet: Fleet, slo: Slo, where: str) -> UsageError:
    single = alone(fleet)
    tails = ", ".join(f"p{p:g} {single.at(p):.1f} ms" for p in slo.percentiles)
    return UsageError(
        f"{where} {slo}",
        found=f"even alone, requests take {tails}: {measured.now}",
        wanted="a target above that: no number of replicas makes a single request faster",
        todo=f"a faster way of serving: tritonkit tune {measured.model} --slo {slo} --variants spec",
    )


def _days(traffic: Traffic, of_one: Curve, terms: Terms) -> tuple[Day, ...]:
    """The days under all rules: first those that keep the target and do not flap, the cheapest of them first."""
    pairs: tuple[tuple[Metric, Sequence[float]], ...] = (
        ("rate", _RATE),
        ("utilization", _UTILIZATION),
        ("queue time", _QUEUE_TIME),
        ("schedule", _SCHEDULE),
    )
    rules = [ScalingRule("none"), *(ScalingRule(metric, target) for metric, targets in pairs for target in targets)]
    days = [simulate_day(rule, traffic, of_one, terms) for rule in rules]
    return tuple(sorted(days, key=lambda day: (not day.keeps(terms.percent), day.replica_hours)))


def _failure(fleet: Fleet, rate: float, replicas: int, percent: float) -> Failure | None:
    """The failure of one replica for a while at the highest rate, in the middle third of the time."""
    if replicas < 2:
        return None
    stand = min(replicas, 16)
    share = rate * stand / replicas
    length = max(min(_OUTAGE_S, _MOST_OUTAGE / 3 / share), _LEAST_OUTAGE / 3 / share)
    moments = draw(fleet.arrivals, share, 3 * length)
    simulated = simulate_fleet(
        moments, fleet.batcher, fleet.costs, stand, fleet.balancing, outages=(Outage(0, length, 2 * length),)
    )

    def tail(first: float, last: float) -> float:
        chosen = simulated.latency_s[(moments >= first) & (moments < last)]
        return FleetRun(np.sort(chosen), 0.0, 0.0, 0.0).at(percent)

    return Failure(replicas, length, tail(0.1 * length, length), tail(length, 2 * length), tail(2 * length, 3 * length))


def _best_way(measured: Measured, demand: Demand, of_now: Curve) -> tuple[Point, Curve]:
    """The way of serving whose replicas hold the target at the highest rate, of those whose costs are known."""
    best, rate = measured.now, of_now.highest_rate(demand.slo)
    space = Space(tuple(measured.costs), measured.batches, _DELAYS_US, preferred=False)
    for point in (point for group in space.groups for point in space.points(group)):
        fleet = _fleet(measured, point, demand)

        def holds(rate: float, fleet: Fleet = fleet) -> bool:
            return rate < fleet.capacity and fleet.simulate(
                _LOOK_REPLICAS * rate, _LOOK_REPLICAS, _LOOK_REQUESTS
            ).holds(demand.slo)

        tried = rate * _BETTER or fleet.capacity / 100
        while holds(tried):
            best, rate = point, tried
            tried *= _BETTER
    if best != measured.now:
        of_best = curve(_fleet(measured, best, demand))
        # Simulated closely, it must still hold more than the present way.
        if of_best.highest_rate(demand.slo) > of_now.highest_rate(demand.slo):
            return best, of_best
    return measured.now, of_now


def _savings(
    measured: Measured,
    demand: Demand,
    fleet: Fleet,
    sized: Sized,
    days: Sequence[Day],
    best: tuple[Point, float],
    of_one: Curve,
) -> tuple[Saving, ...]:
    """The effect of each knob alone, with everything else as it is now, without autoscaling."""
    now = sized.replicas + demand.spare
    rate = demand.traffic.most_per_s
    rows: list[tuple[str, str, float]] = []
    if days[0].rule.metric != "none":
        rows.append(("autoscaling", str(days[0].rule), days[0].replica_hours / 24))
    if demand.spare:
        rows.append(("spare replicas", "none", float(sized.replicas)))
    for times in (2.0, 5.0):
        held = of_one.highest_rate(demand.slo, times)
        text = ",".join(f"p{p:g}={ms * times:g}ms" for p, ms in demand.slo.percentiles.items())
        rows.append(("target", text, _count(rate, held) + demand.spare))
    if best[0] != measured.now:
        rows.append(("way of serving", str(best[0]), _count(rate, best[1]) + demand.spare))
    for balancing in BALANCING:
        if balancing != fleet.balancing:
            other = size(
                replace(fleet, balancing=_balancing(balancing)),
                rate,
                demand.slo,
                near=sized.replicas,
                requests=_COMPARED,
            )
            if other is not None:
                rows.append(("balancing", balancing, other.replicas + demand.spare))
    savings = [Saving(knob, choice, count, count / now) for knob, choice, count in rows]
    return tuple(sorted(savings, key=lambda saving: saving.replicas))


def _balancing(name: str) -> Balancing:
    return next(policy for policy in ("random", "round_robin", "least_request") if policy == name)


def _count(rate: float, held: float) -> float:
    return float(np.ceil(rate / held - 1e-9)) if held else float("inf")


def _by_target(demand: Demand, now: Curve, best: Curve) -> tuple[tuple[float, int | None, int | None], ...]:
    """Replicas for looser and tighter targets."""
    _, target_ms = demand.slo.tightest
    rows = []
    for times in _TARGETS:
        counts = []
        for way in (now, best):
            held = way.highest_rate(demand.slo, times)
            whole = _count(demand.traffic.most_per_s, held)
            counts.append(int(whole) + demand.spare if held else None)
        # If the best way for the target is worse for another target, the present way is the best there.
        fewest = min((count for count in counts if count is not None), default=None)
        rows.append((target_ms * times, counts[0], fewest))
    return tuple(rows)
