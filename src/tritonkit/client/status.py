"""A server's reports about itself and its models, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "BatchStatistics",
    "ModelStatistics",
    "ModelStatus",
    "ServerInfo",
    "info_from",
    "statistics_from",
    "statuses_from",
]


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One version of one model: `state` is Triton's word, `reason` why it is not ready."""

    name: str
    version: str
    state: str
    ready: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server's own name, version and protocol extensions."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Runs of a model with batches of one size; `compute_s` is the sum of their times, counting each run once."""

    size: int
    runs: int
    compute_s: float


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Counters of one model version since it was loaded; times are sums over requests.

    `inference_count` counts items, `execution_count` runs of the model: their quotient is the mean
    batch size. An ensemble never executes itself and has 0 runs.
    """

    name: str
    version: str
    inference_count: int
    execution_count: int
    success_count: int
    failure_count: int
    queue_s: float
    compute_input_s: float
    compute_infer_s: float
    compute_output_s: float
    success_s: float = 0.0
    """Seconds from a request's arrival to its answer, summed over those that succeeded."""
    cache_hit_count: int = 0
    cache_miss_count: int = 0
    """Counts of Triton's response cache; 0 if the model does not use it."""
    batches: tuple[BatchStatistics, ...] = ()
    """Runs by batch size; versions and servers one after the other."""


def statuses_from(response: Any) -> tuple[ModelStatus, ...]:
    """Read a `RepositoryIndexResponse`, in the order of names and versions."""
    statuses = [
        ModelStatus(
            name=entry.name,
            version=entry.version,
            # Triton leaves the state empty for a model it never tried to load.
            state=state or "UNLOADED",
            ready=state == "READY",
            reason=entry.reason,
        )
        for entry in response.models
        # MLServer writes it as "State.READY".
        for state in [entry.state.removeprefix("State.")]
    ]
    return tuple(sorted(statuses, key=lambda s: (s.name, len(s.version), s.version)))


def info_from(response: Any) -> ServerInfo:
    """Read a `ServerMetadataResponse`."""
    return ServerInfo(response.name, response.version, tuple(response.extensions))


def statistics_from(response: Any) -> tuple[ModelStatistics, ...]:
    """Read a `ModelStatisticsResponse`, one value per loaded version."""
    times = ("queue", "compute_input", "compute_infer", "compute_output", "success")
    return tuple(
        ModelStatistics(
            name=entry.name,
            version=entry.version,
            inference_count=entry.inference_count,
            execution_count=entry.execution_count,
            success_count=entry.inference_stats.success.count,
            failure_count=entry.inference_stats.fail.count,
            cache_hit_count=entry.inference_stats.cache_hit.count,
            cache_miss_count=entry.inference_stats.cache_miss.count,
            batches=tuple(
                BatchStatistics(b.batch_size, b.compute_infer.count, sum(p.ns for p in _parts(b)) / 1e9)
                for b in entry.batch_stats
            ),
            **{f"{name}_s": getattr(entry.inference_stats, name).ns / 1e9 for name in times},
        )
        for entry in response.model_stats
    )


def _parts(batch: Any) -> tuple[Any, Any, Any]:
    return batch.compute_input, batch.compute_infer, batch.compute_output
