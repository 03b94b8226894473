"""Observers of calls: metrics and spans."""

from __future__ import annotations

from tritonkit.client.observers.events import CallEvent, Observer, Observers
from tritonkit.client.observers.prometheus import PrometheusMetrics
from tritonkit.client.observers.tracing import OpenTelemetryTracing

__all__ = ["CallEvent", "Observer", "Observers", "OpenTelemetryTracing", "PrometheusMetrics"]
