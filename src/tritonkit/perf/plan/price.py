"""The price of machines by time, for a month and for a million requests."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tritonkit.errors import UsageError

__all__ = ["HOURS_A_MONTH", "Price", "count_text", "parse_price"]

HOURS_A_MONTH = 730.0
"""Hours of a month in a year of 8,760 hours, as clouds bill."""
_HOURS = {"s": 1 / 3600, "h": 1.0, "day": 24.0, "month": HOURS_A_MONTH, "year": 8760.0}
_PRICE = re.compile(r"(?P<currency>[A-Z]{3} ?|[$€£¥])?(?P<amount>\d+(?:\.\d+)?)/(?P<gpu>gpu-)?(?P<unit>[a-z]+)")


@dataclass(frozen=True)
class Price:
    """The price of one machine, or of one GPU. `currency` stands before amounts; it may be empty."""

    per_hour: float
    currency: str = ""
    per_gpu: bool = False

    def __str__(self) -> str:
        return f"{self.text(self.per_hour)}/{'gpu-' if self.per_gpu else ''}h"

    def of_replica(self, gpus: int) -> Price:
        """The price of a replica, which is one machine or uses a given number of GPUs.

        Raises:
            UsageError: it is a price of GPUs, and the replica uses none.
        """
        if not self.per_gpu:
            return self
        if not gpus:
            raise UsageError(
                f"--price {self}",
                found="the measured replica used no GPU",
                wanted="the price of its machine, such as 0.526/h",
                todo="--save a measurement on a machine whose server reports GPUs, or give the machine's price",
            )
        return Price(self.per_hour * gpus, self.currency)

    def text(self, amount: float) -> str:
        """An amount as people read it: three figures where it is small."""
        if amount >= 1000:
            return f"{self.currency}{amount:,.0f}"
        return f"{self.currency}{amount:.2f}" if amount >= 1 else f"{self.currency}{amount:.3g}"

    def per_month(self, machines: float) -> float:
        """The monthly price of machines."""
        return machines * self.per_hour * HOURS_A_MONTH

    def per_million(self, machines: float, rate_per_s: float) -> float:
        """The price of a million requests, answered by machines at this mean rate."""
        return machines * self.per_hour / (3600 * rate_per_s) * 1e6


def count_text(replicas: float) -> str:
    """A number of replicas, perhaps in the mean of a day, as people read it."""
    return f"{replicas:,.1f}" if replicas < 100 and replicas != round(replicas) else f"{replicas:,.0f}"


def parse_price(text: str, where: str = "--price") -> Price:
    """Read `0.526/h`, `$380/month`, `EUR 0.9/h`, or `$2.5/gpu-h`, the price of a GPU.

    Raises:
        UsageError: it is something else, or nothing.
    """
    match = _PRICE.fullmatch(text.strip())
    if not match or match["unit"] not in _HOURS or not float(match["amount"]):
        raise UsageError(
            where,
            found=repr(text),
            wanted="the price of a machine, such as 0.526/h or $380/month, or of a GPU, such as $2.5/gpu-h",
            todo=f"units: {', '.join(_HOURS)}; for a GPU: {', '.join(f'gpu-{unit}' for unit in _HOURS)}",
        )
    currency = (match["currency"] or "").strip()
    shown = f"{currency} " if len(currency) == 3 else currency
    return Price(float(match["amount"]) / _HOURS[match["unit"]], shown, bool(match["gpu"]))
