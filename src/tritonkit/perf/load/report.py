"""The report of a load, as a value that can be written and read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from tritonkit.perf.load.gpu import GpuReport

__all__ = ["LoadSeries", "Report"]


@dataclass(frozen=True)
class LoadSeries:
    """One model over one protocol.

    Args:
        protocol: "grpc" or "http".
        model: the model called.
        requests: the number of requests that were answered or failed.
        failures: the number of failed requests; a wrong answer is a failure.
        rate_per_s: right answers per second, over the whole run.
        p50_ms, p95_ms, p99_ms, largest_ms: times of the right answers; None if there are none.
        mean_bytes: mean size of a right answer's tensors, in bytes.
        first_failure: the message of the first failure.
    """

    protocol: str
    model: str
    requests: int
    failures: int
    rate_per_s: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    largest_ms: float | None
    mean_bytes: float | None
    first_failure: str = ""

    @property
    def error_rate(self) -> float:
        """Failures over requests, 0 to 1."""
        return self.failures / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class Report:
    """A whole run; `gpu` describes the GPUs of the servers, None if they report none."""

    duration_s: float
    series: tuple[LoadSeries, ...]
    gpu: GpuReport | None = None

    @property
    def right(self) -> int:
        """The number of right answers."""
        return sum(series.requests - series.failures for series in self.series)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        series = [asdict(one) | {"error_rate": one.error_rate} for one in self.series]
        return {"duration_s": self.duration_s, "series": series} | ({"gpu": self.gpu.to_dict()} if self.gpu else {})

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Report:
        """Read what `to_dict` gave."""
        return TypeAdapter(cls).validate_python(facts)
