"""Calls as Prometheus metrics."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tritonkit.extras import need_package

if TYPE_CHECKING:
    from tritonkit.client.observers.events import CallEvent
    from tritonkit.client.wire.transport import Headers

__all__ = ["PrometheusMetrics"]

_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds: from an answer cached in this process to the default timeout."""

_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_METRICS: tuple[tuple[str, str, str, tuple[str, ...], tuple[float, ...]], ...] = (
    ("Counter", "calls", "Calls that are over.", ("outcome", "origin"), ()),
    ("Gauge", "calls_under_way", "Calls now.", (), ()),
    ("Histogram", "call_seconds", "From entering a call to its end.", ("origin",), _SECONDS),
    ("Histogram", "wait_seconds", "Of a call: network, server queue and inference.", (), _SECONDS),
    ("Histogram", "queue_seconds", "Of a call: waiting for the client's own limit.", (), _SECONDS),
    ("Histogram", "joining_seconds", "Of a call: waiting to be sent with others.", (), _SECONDS),
    ("Counter", "retries", "Requests after a call's first, hedges included.", (), ()),
    ("Histogram", "batch_items", "Items in the request of a call.", (), _ITEMS),
)
"""Kind, name, text, labels besides the model, upper bounds of buckets."""

_by_registry: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
_lock = threading.Lock()


class PrometheusMetrics:
    """Counts and times calls; `Client(..., observers=[PrometheusMetrics()])`.

    Several of them on one registry count into the same series, so each client may have one.

    Args:
        registry: the prometheus_client package's registry; its default one if None.

    Raises:
        UsageError: the package is not installed (`pip install 'tritonkit[metrics]'`).
    """

    def __init__(self, registry: Any = None) -> None:
        package = need_package("prometheus_client", "tritonkit[metrics]")
        registry = package.REGISTRY if registry is None else registry
        with _lock:
            if registry not in _by_registry:
                _by_registry[registry] = _series(package, registry)
            self._series = _by_registry[registry]
        self._children: dict[tuple[str, ...], Any] = {}

    def started(self, model: str) -> str:
        """Count one more call under way."""
        self._child("calls_under_way", model).inc()
        return model

    def headers(self, token: str) -> Headers:
        """No headers."""
        return ()

    def finished(self, token: str, event: CallEvent) -> None:
        """Count the call and the parts of its time."""
        child, model, timing = self._child, token, event.timing
        child("calls_under_way", model).dec()
        child("calls", model, event.error or "ok", event.origin).inc()
        child("call_seconds", model, event.origin).observe(timing.total_s)
        if event.attempts > 1:
            child("retries", model).inc(event.attempts - 1)
        if event.origin == "server":
            child("wait_seconds", model).observe(timing.wait_s)
            child("queue_seconds", model).observe(timing.queue_s)
            child("joining_seconds", model).observe(timing.joining_s)
            child("batch_items", model).observe(event.batch_size)

    def _child(self, *key: str) -> Any:
        """A series with these label values; the package's look-up takes as long as counting."""
        child = self._children.get(key)
        if child is None:
            name, *labels = key
            child = self._children[key] = self._series[name].labels(*labels)
        return child


def _series(package: Any, registry: Any) -> dict[str, Any]:
    made = {}
    for kind, name, text, labels, bounds in _METRICS:
        options = {"buckets": bounds} if bounds else {}
        metric = getattr(package, kind)
        labels = ("model", *labels)
        made[name] = metric(f"tritonkit_client_{name}", text, labels, registry=registry, **options)
    return made
