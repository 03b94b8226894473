"""A fleet's plan: the demand, and the replicas, costs, savings and days that answer it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tritonkit.perf.load.openloop import Arrivals, Slo
from tritonkit.perf.load.rates import HeldRate
from tritonkit.perf.plan.functions import FunctionPlan, FunctionPrice
from tritonkit.perf.plan.measured import Measured
from tritonkit.perf.plan.price import Price
from tritonkit.perf.plan.scaling import Day
from tritonkit.perf.plan.sizing import Sized
from tritonkit.perf.plan.traffic import Traffic
from tritonkit.perf.simulation import Balancing
from tritonkit.perf.tune.space import Point

__all__ = ["Demand", "Failure", "Plan", "Saving"]

_JOULES_A_KWH = 3.6e6


@dataclass(frozen=True)
class Demand:
    """The demand on a fleet.

    Args:
        traffic: the traffic of a day; the fleet is sized for its highest rate.
        slo: the target.
        price: the price of a machine, which is a replica, or of a GPU; in a `Plan` it is a replica's.
        spare: replicas that may be down while the target holds.
        start_s: seconds from a decision until a new replica answers; None: the measured time.
        balancing: the way in which requests are spread.
        arrivals: the arrival process and its seed.
        function: prices of the same requests as calls of a function; it needs `price`.
    """

    traffic: Traffic
    slo: Slo
    price: Price | None = None
    spare: int = 1
    start_s: float | None = None
    balancing: Balancing = "least_request"
    arrivals: Arrivals = field(default_factory=Arrivals)
    function: FunctionPrice | None = None


@dataclass(frozen=True)
class Saving:
    """Replicas that another choice would need: the mean of a day, spare ones included, and as a share of today's."""

    knob: str
    choice: str
    replicas: float
    of_now: float


@dataclass(frozen=True)
class Failure:
    """A replica is down for some seconds at the highest rate: the tail before, during and after."""

    replicas: int
    seconds: float
    before_ms: float
    down_ms: float
    after_ms: float


@dataclass(frozen=True)
class Plan:
    """A plan and its figures.

    Args:
        point: the way in which each replica serves.
        held_per_s: the rate at which one replica of a large fleet holds the target.
        sized: the fleet without spare replicas. replicas: the number of replicas with them.
        failure: see `Failure`; None for a single replica.
        days: each rule's day, the cheapest that holds first; the first is recommended.
        savings: the savings of other choices, the largest first.
        costs_by_target: (ms, replicas as served now, replicas of the best way), spare ones included; None if no number
            of replicas holds it.
        function: the requests as calls of a function; None if its prices or a machine's were not given.
    """

    measured: Measured
    demand: Demand
    point: Point
    held_per_s: float
    sized: Sized
    replicas: int
    start_s: float
    failure: Failure | None
    days: tuple[Day, ...]
    savings: tuple[Saving, ...]
    costs_by_target: tuple[tuple[float, int | None, int | None], ...]
    best: Point
    function: FunctionPlan | None = None
    simulated_per_s: float = 0.0
    """`held_per_s` by the costs alone, regardless of what the server was seen to do; 0 if it is the same."""
    before: tuple[HeldRate, ...] = ()
    """Earlier measurements of the model as it is served, for this target, on a machine with as many cores."""

    @property
    def range_per_s(self) -> tuple[float, float]:
        """Range of rates at which one replica holds the target: the lowest and the highest known estimate."""
        rates = [self.held_per_s, *(rate.rate_per_s for rate in self.before)]
        return min(rates), max(*rates, self.simulated_per_s)

    @property
    def range_replicas(self) -> tuple[int, int]:
        """Lowest and highest number of replicas for these rates, spare ones included."""
        low, high = self.range_per_s
        held = self.held_per_s
        counts = [
            max(1, int(np.ceil(self.sized.replicas * held / rate - 1e-9))) if rate else self.sized.replicas
            for rate in (high, low)
        ]
        return counts[0] + self.demand.spare, counts[1] + self.demand.spare

    @property
    def fixed(self) -> Day:
        """The day without autoscaling."""
        return next(day for day in self.days if day.rule.metric == "none")

    @property
    def energy_per_million_kwh(self) -> float | None:
        """Energy of the GPUs for a million requests, as under the measured load; None if it is not known."""
        energy_j = self.measured.energy_per_request_j
        return None if energy_j is None else energy_j * 1e6 / _JOULES_A_KWH

    def per_month(self, replicas: float) -> float | None:
        """The monthly cost of replicas; None without a price."""
        price = self.demand.price
        return None if price is None else price.per_month(replicas)

    def per_million(self, replicas: float) -> float | None:
        """The same for a million requests."""
        price = self.demand.price
        return None if price is None else price.per_million(replicas, self.demand.traffic.mean_per_s)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the days without their minutes."""
        demand, price = self.demand, self.demand.price
        best = self.days[0]
        return {
            "model": self.measured.model,
            "served": str(self.point),
            "rate_per_s": demand.traffic.most_per_s,
            "mean_per_s": demand.traffic.mean_per_s,
            "traffic": demand.traffic.name,
            "slo": str(demand.slo),
            "balancing": demand.balancing,
            "replica_per_s": self.held_per_s,
            "replica_per_s_range": list(self.range_per_s),
            "replicas_range": list(self.range_replicas),
            "measured_before": [asdict(rate) for rate in self.before],
            "sized": self.sized.to_dict(),
            "spare": demand.spare,
            "replicas": self.replicas,
            "start_s": self.start_s,
            "price_per_hour": None if price is None else price.per_hour,
            "currency": "" if price is None else price.currency.strip(),
            "per_month": self.per_month(self.replicas),
            "per_million": self.per_million(self.replicas),
            "gpus_per_replica": self.measured.gpus,
            "energy_per_million_kwh": self.energy_per_million_kwh,
            "recommended": str(best.rule),
            "recommended_per_month": self.per_month(best.replica_hours / 24),
            "failure": None if self.failure is None else asdict(self.failure),
            "days": [_day(day) for day in self.days],
            "savings": [asdict(saving) for saving in self.savings],
            "costs_by_target": [{"target_ms": ms, "now": now, "best": best} for ms, now, best in self.costs_by_target],
            "best": str(self.best),
            "function": None if self.function is None else self.function.to_dict(),
        }


def _day(day: Day) -> dict[str, Any]:
    facts = asdict(replace(day, minutes=()))
    del facts["minutes"]
    return facts | {"rule": str(day.rule)}
