"""Prometheus metrics of a server that Triton's statistics over gRPC lack: waiting and refused requests, and the metrics
of language models."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tritonkit.perf.diagnose.snapshot import LanguageLook

__all__ = ["Metrics", "parse_metrics", "read_metrics"]

_TIMEOUT_S = 2.0
_MOST_BYTES = 16 << 20
_SAMPLE = re.compile(r"^(\w+)\{(.*)\}\s+(\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PENDING = "nv_inference_pending_request_count"
_FAILED = "nv_inference_request_failure"
_LLM = "tritonkit_llm_"
_GAUGES = ("running", "waiting", "stalled", "cache_usage")
_OWN_LABELS = ("outcome", "phase", "le")


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics by model: waiting requests, all requests that a full queue has refused so far, and language models."""

    pending: Mapping[str, float] = field(default_factory=dict)
    rejected: Mapping[str, float] = field(default_factory=dict)
    language: Mapping[str, LanguageLook] = field(default_factory=dict)


def read_metrics(address: str) -> Metrics:
    """Ask a server.

    Raises:
        OSError, ValueError: the server does not answer, or its answer is not metrics.
    """
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES).decode(errors="replace")
    except http.client.HTTPException as error:
        raise ValueError(f"no HTTP: {type(error).__name__}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ValueError(f"HTTP status {answer.status}")
    return parse_metrics(text)


def parse_metrics(text: str) -> Metrics:
    """Read metrics from Prometheus' text format; versions of a model are added up."""
    pending: dict[str, float] = {}
    rejected: dict[str, float] = {}
    language: dict[str, list[tuple[str, str, float]]] = {}
    for name, written, value in _SAMPLE.findall(text):
        labels = dict(_LABEL.findall(written))
        model = labels.get("model", "")
        if model and name.startswith(_LLM):
            own = next((labels[label] for label in _OWN_LABELS if label in labels), "")
            language.setdefault(model, []).append((name.removeprefix(_LLM), own, float(value)))
        into = pending if name == _PENDING else None
        if name == _FAILED and labels.get("reason") == "REJECTED":
            into = rejected
        if into is not None and model:
            into[model] = into.get(model, 0.0) + float(value)
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
