"""The objective of a search among the ways that hold the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from tritonkit.errors import UsageError

if TYPE_CHECKING:
    from tritonkit.perf.tune.outcome import Evaluation

__all__ = ["OBJECTIVES", "Objective", "ObjectiveName"]

ObjectiveName: TypeAlias = Literal["throughput", "latency", "cost"]
OBJECTIVES: tuple[str, ...] = get_args(ObjectiveName)


@dataclass(frozen=True)
class Objective:
    """The highest rate; or at one rate the lowest latency, or the least processor time for a request.

    Args:
        name: the objective's name.
        rate_per_s: the rate for `latency` and `cost`; None: a rate that the model holds as it is served now.
    """

    name: ObjectiveName = "throughput"
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.name not in OBJECTIVES:
            raise UsageError("--objective", found=self.name, wanted=" or ".join(OBJECTIVES))
        if self.name == "throughput" and self.rate_per_s is not None:
            raise UsageError(
                f"--rate {self.rate_per_s:g}",
                found="it cannot be used with --objective throughput, which searches for the rate",
                wanted="--objective latency or cost",
            )

    def value(self, evaluation: Evaluation | None) -> float:
        """The value of a way: twice the number is twice as good; 0 for a way that does not hold the target."""
        if evaluation is None or not evaluation.rate_per_s:
            return 0.0
        if self.name == "latency":
            return 1e3 / evaluation.tail_ms if evaluation.tail_ms else 0.0
        if self.name == "cost":
            return 1 / evaluation.cpu_s if evaluation.cpu_s else 0.0
        return evaluation.rate_per_s

    def words(self, evaluation: Evaluation, slo: str) -> str:
        """The figures of a way, as a line."""
        what = "worst tail" if self.name == "throughput" else "median tail"
        tail = "" if evaluation.tail_ms is None else f", {what} {evaluation.tail_ms:.1f} ms"
        if self.name == "throughput":
            return f"{evaluation.rate_per_s:8.1f} requests/s hold {slo}{tail}"
        cpu = "" if evaluation.cpu_s is None else f", {1e3 * evaluation.cpu_s:.2f} ms of processor a request"
        if not evaluation.rate_per_s:
            return f"does not hold {slo}"
        return f"{evaluation.rate_per_s:8.1f} requests/s at {slo}{tail}{cpu}"

    def gain_words(self, gain: float) -> str:
        """The gain of the best over the present way, in words."""
        if self.name == "throughput":
            return f"{gain:.2f} times the rate"
        what = "latency" if self.name == "latency" else "processor time"
        return f"{1 / gain:.2f} of the {what}"
