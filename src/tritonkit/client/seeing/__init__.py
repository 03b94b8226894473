"""What calls tell others: metrics, spans, log lines."""

from __future__ import annotations

from tritonkit.client.seeing.events import CallEvent, Observer, Watch
from tritonkit.client.seeing.prometheus import PrometheusMetrics
from tritonkit.client.seeing.tracing import OpenTelemetryTracing

__all__ = ["CallEvent", "Observer", "OpenTelemetryTracing", "PrometheusMetrics", "Watch"]
