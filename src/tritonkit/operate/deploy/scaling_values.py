"""The parts of `values.yaml` about autoscalers and monitoring, and what templates take from the room `observe`."""

from __future__ import annotations

import json
from typing import Annotated, Self

from pydantic import Field, model_validator

from tritonkit import metrics as m
from tritonkit.operate.deploy.pinned import Image
from tritonkit.operate.observe import ALERTS, rules_text
from tritonkit.operate.observe.grafana import dashboard_text
from tritonkit.operate.observe.panels import SECTIONS
from tritonkit.repository.modelspec.base import Strict

__all__ = ["Keda", "Monitoring", "Scaling", "ToZero"]

Count = Annotated[int, Field(ge=1, le=10_000, strict=True)]
Seconds = Annotated[int, Field(ge=0, le=3600, strict=True)]
_COMPUTE = (m.COMPUTE_INPUT, m.COMPUTE_INFER, m.COMPUTE_OUTPUT)


class Scaling(Strict):
    """Bounds and targets of whichever autoscaler a cluster has."""

    min: Count = 2
    max: Count = 6
    cpu_percent: Annotated[int, Field(ge=10, le=95, strict=True)] = 80
    """Percent of a container's CPU request."""
    queue_ratio: Annotated[float, Field(gt=0, le=100)] = 0.5
    """Ratio of the time in the queue to the time of computing."""
    pending: Annotated[float, Field(gt=0, le=100_000)] = 8.0
    """Waiting requests per replica."""
    window_s: Annotated[int, Field(ge=60, le=3600, strict=True)] = 60
    """The span of a rate: at least four scrapes."""
    up_s: Seconds = 0
    down_s: Seconds = 600
    """Seconds of the stabilization windows for scaling out and in."""

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min is {self.min}, max is {self.max}; wanted min of at most max")
        return self

    def queue_query(self, namespace: str) -> str:
        """Ratio of queue time to compute time of the model that waits most, times the number of replicas that answer.

        The query gives 0 without traffic. It gives nothing if no replica is scraped, so that no autoscaler scales in.
        """

        def gained(metric: str) -> str:
            selected = _selector(metric, namespace)
            return f"sum by (model) (rate({selected}[{self.window_s}s]))"

        compute = " + ".join(map(gained, _COMPUTE))
        worst = f"max({gained(m.QUEUE_DURATION)} / (({compute}) > 0))"
        up = _selector(m.UP, namespace)
        return f"({worst} or 0 * max({up})) * sum({up})"

    def pending_query(self, namespace: str) -> str:
        """Mean number of waiting requests of all models and replicas over the window."""
        waits = f"sum(avg_over_time({_selector(m.PENDING, namespace)}[{self.window_s}s]))"
        return f"{waits} or 0 * max({_selector(m.UP, namespace)})"

    def adapter_rules(self, namespace: str) -> str:
        """The same two queries as external metrics of prometheus-adapter, a JSON text, which is YAML too."""
        queries = {
            "triton_queue_over_compute": (m.QUEUE_DURATION, self.queue_query(namespace)),
            "triton_pending_requests": (m.PENDING, self.pending_query(namespace)),
        }
        rules = [
            {
                "seriesQuery": _selector(series, namespace),
                "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
                "name": {"as": name},
                "metricsQuery": query,
            }
            for name, (series, query) in queries.items()
        ]
        return json.dumps({"externalRules": rules}, indent=2)


class Keda(Strict):
    """The Prometheus that KEDA queries, and KEDA's namespace."""

    prometheus: Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9.:/_-]+$")] | None = None
    """Prometheus' address; that of the component `prometheus` by default."""
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] = "keda"
    """Namespace of KEDA's operator and its HTTP add-on."""

    def address(self, namespace: str) -> str:
        """The address of the Prometheus that KEDA queries."""
        return self.prometheus or f"http://prometheus.{namespace}.svc:9090"


class ToZero(Strict):
    """Values of the component `scale-to-zero`."""

    hosts: tuple[Annotated[str, Field(pattern=r"^[a-z0-9.-]{1,253}$")], ...] = ()
    """Names by which callers outside the cluster know it, in addition to the Service's."""
    concurrency: Count = 16
    """Target number of concurrent requests per replica."""
    after_s: Annotated[int, Field(ge=60, le=86_400, strict=True)] = 600
    """Seconds without a request after which the last replica goes."""


class Monitoring(Strict):
    """Values of the components `monitoring` and `prometheus`."""

    image: Image = "prom/prometheus:v3.5.0"
    scrape_s: Annotated[int, Field(ge=1, le=300, strict=True)] = 15
    retention_hours: Annotated[int, Field(ge=1, le=8760, strict=True)] = 24

    @property
    def rules(self) -> str:
        """The groups of rules as YAML: those of `deploy/prometheus/alerts.yml`."""
        return rules_text(ALERTS)

    @property
    def dashboard(self) -> str:
        """Grafana's dashboard as JSON."""
        return dashboard_text(SECTIONS)


def _selector(metric: str, namespace: str) -> str:
    return f'{metric}{{job="{m.TRITON_JOB}",namespace="{namespace}"}}'
