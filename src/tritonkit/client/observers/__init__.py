"""What calls tell others: metrics, spans, log lines."""

from __future__ import annotations

from tritonkit.client.observers.events import CallEvent, Observer, Watch
from tritonkit.client.observers.prometheus import PrometheusMetrics
from tritonkit.client.observers.tracing import OpenTelemetryTracing

__all__ = ["CallEvent", "Observer", "OpenTelemetryTracing", "PrometheusMetrics", "Watch"]
