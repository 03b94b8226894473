"""Prometheus metrics of a server that Triton's statistics over gRPC lack: waiting and refused requests, and the metrics
of language models."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tritonkit import metrics as m
from tritonkit.perf.diagnose.snapshot import LanguageLook
from tritonkit.perf.load.gpu import GpuLook, gpu_looks
from tritonkit.perf.load.prometheus import MetricSample, read_samples

__all__ = ["Metrics", "metrics_of", "read_metrics"]

_LLM = "tritonkit_llm_"
_GAUGES = ("running", "waiting", "stalled", "cache_usage")
_OWN_LABELS = ("outcome", "phase", "le")


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics by model: waiting requests, all requests that a full queue has refused so far, and language models. GPUs
    are by UUID."""

    pending: Mapping[str, float] = field(default_factory=dict)
    rejected: Mapping[str, float] = field(default_factory=dict)
    language: Mapping[str, LanguageLook] = field(default_factory=dict)
    gpus: Mapping[str, GpuLook] = field(default_factory=dict)


def read_metrics(address: str) -> Metrics:
    """Ask a server.

    Raises:
        OSError, ValueError: the server does not answer, or its answer is not metrics.
    """
    samples = read_samples(address)
    return replace(metrics_of(samples), gpus=gpu_looks(samples, time.monotonic()))


def metrics_of(samples: Iterable[MetricSample]) -> Metrics:
    """Sort samples by model; versions of a model are added up."""
    pending: dict[str, float] = {}
    rejected: dict[str, float] = {}
    language: dict[str, list[tuple[str, str, float]]] = {}
    for name, labels, value in samples:
        model = labels.get("model", "")
        if model and name.startswith(_LLM):
            own = next((labels[label] for label in _OWN_LABELS if label in labels), "")
            language.setdefault(model, []).append((name.removeprefix(_LLM), own, value))
        into = pending if name == m.PENDING else None
        if name == m.REQUESTS_FAILED and labels.get("reason") == "REJECTED":
            into = rejected
        if into is not None and model:
            into[model] = into.get(model, 0.0) + value
    looks = {model: _language(samples) for model, samples in language.items()}
    return Metrics(pending, rejected, looks)


def _language(samples: Iterable[tuple[str, str, float]]) -> LanguageLook:
    gauges: dict[str, float] = {}
    counters: dict[tuple[str, str], float] = {}
    for name, own, value in samples:
        if name in _GAUGES:
            before = gauges.get(name, 0.0)
            # Each version has a cache of its own.
            gauges[name] = max(before, value) if name == "cache_usage" else before + value
        else:
            counters[name, own] = counters.get((name, own), 0.0) + value
    return LanguageLook(gauges, counters)
