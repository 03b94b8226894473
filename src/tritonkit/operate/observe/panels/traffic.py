"""Panels of traffic and errors, and of how fast errors use up what the target allows."""

from __future__ import annotations

from tritonkit import metrics as m
from tritonkit.operate.observe.panel import PER_S, PERCENT, TIMES, Need, Panel, Query, Section
from tritonkit.operate.observe.promql import MODEL, REPLICA, error_ratio, gateway, per_s, triton
from tritonkit.operate.observe.slo import BUDGET, FAST, SLOW, TARGET_TEXT

__all__ = ["TRAFFIC"]

_RATIO = error_ratio("$window", chosen=True)

TRAFFIC = Section(
    "Traffic and errors",
    (
        Panel(
            "traffic",
            "Requests answered",
            PER_S,
            (Query(per_s(triton(m.REQUESTS_OK, MODEL, REPLICA)), "{{model}}"),),
            "Successful requests per second, by model; an ensemble's steps are models too.",
            "An unexpected drop is the first sign of most faults.",
            Need.traffic,
        ),
        Panel(
            "gateway-traffic",
            "Requests at the gateway, by code",
            PER_S,
            (Query(per_s(gateway(m.GATEWAY_REQUESTS, MODEL), m.GATEWAY_CODES), "{{code}} {{grpc_status}}"),),
            "Requests to the gateway, by status code, whether a replica or the gateway answered.",
            "It also counts requests that no replica saw: refused keys, limits, replicas that were down.",
            Need.gateway,
        ),
        Panel(
            "errors",
            "Share of requests that failed",
            PERCENT,
            (Query(f"100 * ({_RATIO})", "{{model}}"),),
            "Failures that are the service's fault, over all requests: counted by the gateway if it knows the model, "
            "else by Triton, without requests that the caller gave up.",
            f"The target is {TARGET_TEXT} answered.",
            Need.traffic,
            ((100 * BUDGET, f"{100 * BUDGET:g} %"),),
        ),
        Panel(
            "failures",
            "Failed requests in Triton, by reason",
            PER_S,
            (
                Query(
                    f"{per_s(triton(m.REQUESTS_FAILED, MODEL, REPLICA), 'model, reason')} > 0", "{{model}} {{reason}}"
                ),
            ),
            "REJECTED: a full queue; CANCELED: the caller gave up; BACKEND: the model failed; OTHER: the rest.",
            "The reason says where to look: the queue, the caller, the model's log.",
            Need.failures,
        ),
        Panel(
            "slo-burn",
            "Burn rate of the error budget",
            TIMES,
            (
                Query(f"({error_ratio('5m', chosen=True)}) / {BUDGET:g}", "{{model}} 5 min"),
                Query(f"({error_ratio('1h', chosen=True)}) / {BUDGET:g}", "{{model}} 1 h"),
            ),
            "The share of failures over the share that the target allows: at 1, a month's budget lasts a month.",
            f"Alerts fire when both a long and a short window burn: {FAST:g} for an hour, {SLOW:g} for six.",
            Need.traffic,
            ((FAST, "page"), (SLOW, "ticket")),
        ),
    ),
)
