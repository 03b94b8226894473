"""The former name of `tritonkit.client.observers`."""

from __future__ import annotations

import warnings

from tritonkit.client.observers import CallEvent, Observer, OpenTelemetryTracing, PrometheusMetrics

__all__ = ["CallEvent", "Observer", "OpenTelemetryTracing", "PrometheusMetrics"]

warnings.warn("tritonkit.client.seeing is tritonkit.client.observers now", DeprecationWarning, stacklevel=2)
