"""The same requests as calls of a function (AWS Lambda): their cost, and the rate up to which they are cheaper."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tritonkit.errors import UsageError
from tritonkit.perf.plan.price import HOURS_A_MONTH

__all__ = ["MEMORY_MIB", "FunctionPlan", "FunctionPrice", "plan_function"]

MEMORY_MIB = 1769
"""Memory that comes with one vCPU."""
_MEMORY = (128, 10_240)


@dataclass(frozen=True)
class FunctionPrice:
    """Prices of calls, in the currency of the machines.

    Args:
        per_gb_s: the price of a GiB of memory for a second.
        per_million: the price of a million calls of any duration.
        memory_mib: the function's memory.
        call_ms: billed duration of a call; None: the latency of a request that waits for no other at a replica.

    Raises:
        UsageError: a figure is impossible.
    """

    per_gb_s: float
    per_million: float
    memory_mib: int = MEMORY_MIB
    call_ms: float | None = None

    def __post_init__(self) -> None:
        for option, value in (("--lambda-price-gb-s", self.per_gb_s), ("--lambda-price-million", self.per_million)):
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(option, found=f"{value:g}", wanted="a price from 0")
        if not self.per_gb_s and not self.per_million:
            raise UsageError("--lambda-price-gb-s", found="0, and calls cost nothing", wanted="a price")
        if not _MEMORY[0] <= self.memory_mib <= _MEMORY[1]:
            raise UsageError("--lambda-memory", found=str(self.memory_mib), wanted="128 to 10240, in MiB")

    def per_call(self, call_ms: float) -> float:
        """The price of one call; time counts in whole milliseconds."""
        seconds = math.ceil(round(call_ms, 6)) / 1000
        return seconds * self.memory_mib / 1024 * self.per_gb_s + self.per_million / 1e6


@dataclass(frozen=True)
class FunctionPlan:
    """Requests as calls of a function, compared with replicas.

    Args:
        call_ms: duration of a call. memory_mib: the function's memory.
        per_million: the cost of a million calls. per_month: the monthly cost of the day's calls.
        break_even_per_s: the steady rate below which calls cost less than replicas; None if they do at every rate.
        break_even_replicas: paid replicas at that rate, spare ones included.
    """

    call_ms: float
    memory_mib: int
    per_million: float
    per_month: float
    break_even_per_s: float | None
    break_even_replicas: int | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def plan_function(
    price: FunctionPrice,
    alone_ms: float,
    mean_per_s: float,
    *,
    replica_per_s: float,
    spare: int,
    replica_per_hour: float,
) -> FunctionPlan:
    """Calls instead of replicas.

    Args:
        price: the prices of calls.
        alone_ms: the latency of a request that waits for no other at a replica.
        mean_per_s: the day's mean rate of calls.
        replica_per_s: the rate that a replica holds. spare: further replicas that are paid.
        replica_per_hour: the price of a replica for an hour.
    """
    call_ms = alone_ms if price.call_ms is None else price.call_ms
    call_price = price.per_call(call_ms)
    count = _crossing(call_price, replica_per_s, spare, replica_per_hour / 3600)
    paid = None if count is None else count + spare
    return FunctionPlan(
        call_ms,
        price.memory_mib,
        call_price * 1e6,
        call_price * mean_per_s * 3600 * HOURS_A_MONTH,
        None if paid is None else paid * replica_per_hour / 3600 / call_price,
        paid,
    )


def _crossing(call_price: float, held: float, spare: int, replica_per_s: float) -> int | None:
    """The smallest number of replicas, spare ones aside, that costs less than the calls that they hold."""
    gained = call_price * held - replica_per_s
    if gained <= 0:
        return None
    return max(1, math.ceil(spare * replica_per_s / gained - 1e-9))
