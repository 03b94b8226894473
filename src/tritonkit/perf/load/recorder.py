"""Answers, counted while a load runs; parts from several processes add up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritonkit.perf.load.histogram import Histogram
from tritonkit.perf.load.report import LoadSeries, Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Recorder"]

_POINTS = (50, 95, 99)


@dataclass
class _Counted:
    """One model over one protocol."""

    times: Histogram = field(default_factory=Histogram)
    failures: int = 0
    first_failure: str = ""
    size_bytes: int = 0


class Recorder:
    """Counts requests by protocol and model. Times are those of right answers: an immediate refusal must not make a
    server look quick."""

    def __init__(self) -> None:
        self._counted: dict[tuple[str, str], _Counted] = {}

    def add(self, protocol: str, model: str, ms: float, size_bytes: int = 0, failure: str = "") -> None:
        """Count one request: its time and the bytes of its answer, or the words of its failure."""
        counted = self._counted.setdefault((protocol, model), _Counted())
        if failure:
            counted.failures += 1
            counted.first_failure = counted.first_failure or failure
            return
        counted.times.add(ms)
        counted.size_bytes += size_bytes

    def take(self) -> list[dict[str, Any]]:
        """The counts since the last time, as plain values that can be sent; then start from zero."""
        taken = [
            {
                "protocol": protocol,
                "model": model,
                "counts": counted.times.counts(),
                "largest_ms": counted.times.largest_ms,
                "failures": counted.failures,
                "first_failure": counted.first_failure,
                "size_bytes": counted.size_bytes,
            }
            for (protocol, model), counted in self._counted.items()
        ]
        self._counted.clear()
        return taken

    def merge(self, taken: Iterable[Mapping[str, Any]]) -> None:
        """Add what another recorder gave with `take`."""
        for part in taken:
            counted = self._counted.setdefault((part["protocol"], part["model"]), _Counted())
            counts = [(bucket, count) for bucket, count in part["counts"]]
            counted.times.merge(Histogram(counts, part["largest_ms"]))
            counted.failures += part["failures"]
            counted.first_failure = counted.first_failure or part["first_failure"]
            counted.size_bytes += part["size_bytes"]

    def report(self, duration_s: float) -> Report:
        """All of it, over the seconds that it took."""
        series = [
            _series(protocol, model, counted, duration_s)
            for (protocol, model), counted in sorted(self._counted.items())
        ]
        return Report(duration_s, tuple(series))


def _series(protocol: str, model: str, counted: _Counted, duration_s: float) -> LoadSeries:
    right = len(counted.times)
    p50, p95, p99 = (counted.times.percentile(point) for point in _POINTS)
    return LoadSeries(
        protocol=protocol,
        model=model,
        requests=right + counted.failures,
        failures=counted.failures,
        rate_per_s=right / duration_s if duration_s > 0 else 0.0,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        largest_ms=counted.times.largest_ms if right else None,
        mean_bytes=counted.size_bytes / right if right else None,
        first_failure=counted.first_failure,
    )
