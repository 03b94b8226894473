"""Panels of the gateway: callers by key, and the replicas behind it."""

from __future__ import annotations

from tritonkit import metrics as m
from tritonkit.operate.observe.panel import COUNT, DAYS, MS, PER_S, PERCENT, Need, Panel, Query, Section
from tritonkit.operate.observe.panels.latency import percentile
from tritonkit.operate.observe.promql import MODEL, gateway, instants, per_s, per_s_of_any, ratio

__all__ = ["GATEWAY", "KEYS"]

_BY_KEY = per_s(gateway(m.GATEWAY_REQUESTS, MODEL), "key")
_CLUSTER = "envoy_cluster_name"


def _by_key(codes: tuple[str, ...]) -> str:
    """The share of a key's requests with such codes, in percent."""
    bad = per_s_of_any(m.GATEWAY_REQUESTS, codes, (MODEL,), "key")
    return ratio(f"({bad} or 0 * {_BY_KEY})", _BY_KEY, 100)


KEYS = Section(
    "Callers, by key",
    (
        Panel(
            "key-traffic",
            "Requests, by key",
            PER_S,
            (Query(_BY_KEY, "{{key}}"),),
            "Requests of each key, whether they succeeded or failed.",
            "It shows which caller sends how much, and since when.",
            Need.gateway,
        ),
        Panel(
            "key-errors",
            "Share of failed requests, by key",
            PERCENT,
            (Query(_by_key(m.BAD_CODES), "{{key}}"),),
            "The share of each key's requests that the service failed.",
            "If only one caller fails, its requests differ from those of others.",
            Need.gateway,
        ),
        Panel(
            "key-refused",
            "Share of refused requests, by key",
            PERCENT,
            (Query(_by_key(m.REFUSED_CODES), "{{key}}"),),
            "Requests beyond the key's limit, or with a key that may not do this.",
            "A caller at its limit needs a higher one, or retries in a loop.",
            Need.gateway,
        ),
        Panel(
            "key-latency",
            "Latency at the gateway, p95, by key",
            MS,
            (Query(percentile(95, "key", MODEL), "{{key}}"),),
            "95 % of a key's requests were answered sooner; interpolated within the gateway's buckets.",
            "A caller with larger requests waits longer than the others.",
            Need.gateway,
        ),
    ),
)

GATEWAY = Section(
    "Gateway",
    (
        Panel(
            "gateway-active",
            "Requests in flight",
            COUNT,
            (Query(instants(gateway(m.GATEWAY_ACTIVE), _CLUSTER), f"{{{{{_CLUSTER}}}}}"),),
            "Requests that the gateway has sent to replicas and that are not answered yet.",
            "By Little's law it is the rate times the latency, and it grows before latency does.",
            Need.gateway,
        ),
        Panel(
            "gateway-replicas",
            "Replicas behind the gateway",
            COUNT,
            (
                Query(instants(gateway(m.GATEWAY_HEALTHY), _CLUSTER), f"{{{{{_CLUSTER}}}}} healthy"),
                Query(instants(gateway(m.GATEWAY_MEMBERS), _CLUSTER), f"{{{{{_CLUSTER}}}}} all"),
                Query(instants(gateway(m.GATEWAY_EJECTED), _CLUSTER), f"{{{{{_CLUSTER}}}}} ejected"),
            ),
            "Healthy replicas, all that are configured, and those ejected by outlier detection.",
            "Failed connections eject a replica; errors of a model do not.",
            Need.gateway,
        ),
        Panel(
            "gateway-retries",
            "Requests sent again",
            PER_S,
            (Query(per_s(gateway(m.GATEWAY_RETRIES), _CLUSTER), f"{{{{{_CLUSTER}}}}}"),),
            "Requests that the gateway sent to another replica.",
            "Retries hide a bad replica from callers; this panel shows it.",
            Need.gateway,
        ),
        Panel(
            "gateway-tls",
            "Failed TLS handshakes",
            PER_S,
            (
                Query(
                    f"sum by (envoy_listener_address) (rate({gateway(m.GATEWAY_TLS_ERRORS)}[$window]))",
                    "{{envoy_listener_address}}",
                ),
            ),
            "Connections that ended before the first request.",
            "After a change of certificates: callers that do not trust the new one.",
            Need.gateway,
        ),
        Panel(
            "gateway-certificate",
            "Days until a certificate expires",
            DAYS,
            (Query(instants(gateway(m.GATEWAY_CERTIFICATE_DAYS), "instance", "min"), "{{instance}}"),),
            "The days left of the gateway's certificate that expires first.",
            "Once it has expired, nobody can connect.",
            Need.gateway,
        ),
    ),
)
