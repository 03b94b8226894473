"""What the gateway sees of callers, by key, and of the replicas behind it."""

from __future__ import annotations

from tritonkit.operate.observe import metrics as m
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
            "Requests that came with each key, answered well or not.",
            "Who sends how much, and who began to.",
            Need.gateway,
        ),
        Panel(
            "key-errors",
            "Share of failed requests, by key",
            PERCENT,
            (Query(_by_key(m.BAD_CODES), "{{key}}"),),
            "Failures by the service's fault, of each key's requests.",
            "One caller that fails alone sends what the others do not.",
            Need.gateway,
        ),
        Panel(
            "key-refused",
            "Share of refused requests, by key",
            PERCENT,
            (Query(_by_key(m.REFUSED_CODES), "{{key}}"),),
            "Requests beyond the key's limit, or with a key that may not do this.",
            "A caller at its limit wants a higher one, or has a loop in it.",
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
            "Requests under way",
            COUNT,
            (Query(instants(gateway(m.GATEWAY_ACTIVE), _CLUSTER), f"{{{{{_CLUSTER}}}}}"),),
            "Requests that the gateway has sent to replicas and that are not answered yet.",
            "By Little's law it is the rate times the latency: it grows before latency is seen to.",
            Need.gateway,
        ),
        Panel(
            "gateway-replicas",
            "Replicas that the gateway sends to",
            COUNT,
            (
                Query(instants(gateway(m.GATEWAY_HEALTHY), _CLUSTER), f"{{{{{_CLUSTER}}}}} healthy"),
                Query(instants(gateway(m.GATEWAY_MEMBERS), _CLUSTER), f"{{{{{_CLUSTER}}}}} all"),
                Query(instants(gateway(m.GATEWAY_EJECTED), _CLUSTER), f"{{{{{_CLUSTER}}}}} ejected"),
            ),
            "Healthy replicas, all that are configured, and those ejected by outlier detection.",
            "Ejection comes from connections that fail, not from errors of a model.",
            Need.gateway,
        ),
        Panel(
            "gateway-retries",
            "Requests sent again",
            PER_S,
            (Query(per_s(gateway(m.GATEWAY_RETRIES), _CLUSTER), f"{{{{{_CLUSTER}}}}}"),),
            "Requests that the gateway sent to another replica.",
            "Retries hide a bad replica from callers; here it shows.",
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
            "Connections that ended before a request.",
            "After a change of certificates: callers who do not trust the new one.",
            Need.gateway,
        ),
        Panel(
            "gateway-certificate",
            "Days until a certificate ends",
            DAYS,
            (Query(instants(gateway(m.GATEWAY_CERTIFICATE_DAYS), "instance", "min"), "{{instance}}"),),
            "Of the certificate of the gateway that ends first.",
            "After it nobody can connect.",
            Need.gateway,
        ),
    ),
)
