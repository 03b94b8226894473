"""Panels of latency: percentiles at the gateway, the mean in Triton."""

from __future__ import annotations

from tritonkit import metrics as m
from tritonkit.operate.observe.panel import MS, Need, Panel, Query, Section
from tritonkit.operate.observe.promql import MODEL, REPLICA, gateway, per_s, ratio, triton

__all__ = ["LATENCY", "percentile"]

_BUCKETS = (
    "Interpolated within a bucket of the gateway's histogram, so no more exact than its buckets. "
    "A caller that sends or reads slowly does not add to it."
)


def percentile(percent: float, by: str, *labels: str) -> str:
    """PromQL for a percentile of the gateway's histogram, in ms."""
    buckets = per_s(gateway(f"{m.GATEWAY_MS}_bucket", *labels), f"le, {by}")
    return f"histogram_quantile({percent / 100:g}, {buckets})"


def _at_gateway(percent: float) -> Panel:
    return Panel(
        f"latency-p{percent:g}",
        f"Latency at the gateway, p{percent:g}",
        MS,
        (Query(percentile(percent, "model", MODEL), "{{model}}"),),
        f"{percent:g} % of a model's requests were answered sooner, from a request's last byte to its answer's first. "
        f"{_BUCKETS}",
        "It is the service's part of the callers' wait, including retries and queues.",
        Need.gateway,
    )


LATENCY = Section(
    "Latency",
    (
        _at_gateway(95),
        _at_gateway(99),
        Panel(
            "latency-gateway-mean",
            "Latency at the gateway, mean",
            MS,
            (
                Query(
                    ratio(per_s(gateway(f"{m.GATEWAY_MS}_sum", MODEL)), per_s(gateway(f"{m.GATEWAY_MS}_count", MODEL))),
                    "{{model}}",
                ),
            ),
            "The mean over the same requests.",
            "The difference to the mean in Triton is the gateway, its retries and the network.",
            Need.gateway,
        ),
        Panel(
            "latency",
            "Latency in Triton, mean",
            MS,
            (
                Query(
                    ratio(
                        per_s(triton(m.ALL_DURATION, MODEL, REPLICA)),
                        per_s(triton(m.REQUESTS_OK, MODEL, REPLICA)),
                        1e-3,
                    ),
                    "{{model}}",
                ),
            ),
            "From a request's arrival in Triton to its answer, including the queue; the mean, by model. Triton has no "
            "histogram, and its summaries cost a third of the throughput (server#8561): the gateway has percentiles. "
            "For a language model it covers only the way into its queue: its own panels have the rest.",
            "If it grows, the panels of queue and run below say which of the two is the cause.",
            Need.traffic,
        ),
    ),
)
