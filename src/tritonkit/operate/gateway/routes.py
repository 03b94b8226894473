"""Envoy's route configuration: the requests that pass the gateway, the rights of keys, and the destinations.

Envoy takes a new one from its file while it runs. So everything that changes at run time is in it: keys, rates, and
the models that are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tritonkit.operate.gateway.clusters import CANDIDATE, SHADOW, Split
from tritonkit.operate.gateway.rates import ABOUT_BURST, LOCAL_RATE, key_rates
from tritonkit.operate.gateway.shared_limits import rate_limits, unshared
from tritonkit.operate.gateway.spec import GatewayLimits, GatewaySpec
from tritonkit.operate.gateway.token_rate import SUBJECT_RATE, subject_rates
from tritonkit.operate.keys import ApiKey

__all__ = [
    "ADMIT",
    "BUFFER",
    "CHOICE",
    "GRPC_MODEL_METHODS",
    "IDENTIFY",
    "REQUESTS",
    "SERVICE",
    "SPACE",
    "SPLIT",
    "routes",
]

SERVICE = "inference.GRPCInferenceService"
_GRPC_ABOUT = ("ModelReady", "ModelMetadata", "ModelConfig")
GRPC_MODEL_METHODS = ("ModelInfer", *_GRPC_ABOUT)
"""Methods whose request names a model, in its first field. ModelStatistics is not one: without a name it is about all
models."""
_GRPC_PLAIN = ("ServerLive", "ServerReady", "ServerMetadata")
_HEALTH = "/grpc.health.v1.Health/(Check|Watch)"

_NAME = r"[A-Za-z0-9._~-]+"
_REST_MODEL = rf"/v2/models/{_NAME}(/versions/[0-9]+)?(/(infer|generate|generate_stream|ready|config|stats))?"
_REST_PLAIN = r"/v2|/v2/health/(live|ready)"
_CLOSED = (
    rf"/{SERVICE}/.*|/v2/(repository|systemsharedmemory|cudasharedmemory|trace|logging)(/.*)?"
    r"|/v2/models/.*/trace/.*"
)

SPACE = "tritonkit.gateway"
"""Namespace of a request's metadata for results of the Lua filters, as in `admission.lua`."""
IDENTIFY, ADMIT = "tritonkit.identify", "tritonkit.admit"
"""The names of the Lua filters, which are also the keys of their data in a route's metadata. Without tokens there is
only the second."""
WHOLE, SPLIT = "whole", "split"
"""Values in a route's metadata: whether all requests for a served model go to the same servers."""
CHOICE = "x-tritonkit-release"
"""The header with which a caller chooses a version during a release: `candidate` or `stable`."""
REQUESTS = "x-tritonkit-requests"
"""The header with the number of requests in a stream. A stream with `1` is buffered like any other request; one without
the header may have any number, for any models."""
BUFFER = "envoy.filters.http.buffer"
_TYPE = "type.googleapis.com/envoy.extensions.filters.http"


@dataclass(frozen=True)
class _Route:
    """Requests that pass: their name for `admission.lua`, pattern, the cluster's protocol, whether they stream."""

    name: str
    pattern: str
    protocol: str
    streams: bool = False


_ROUTES = (
    _Route("grpc-model", rf"/{SERVICE}/ModelInfer", "grpc"),
    _Route("grpc-about", rf"/{SERVICE}/({'|'.join(_GRPC_ABOUT)})", "grpc"),
    _Route("grpc-stream", rf"/{SERVICE}/ModelStreamInfer", "grpc", streams=True),
    _Route("grpc-every", rf"/{SERVICE}/ModelStatistics", "grpc"),
    _Route("grpc-plain", rf"/{SERVICE}/({'|'.join(_GRPC_PLAIN)})|{_HEALTH}", "grpc"),
    _Route("rest-every", r"/v2/models/stats", "rest"),
    _Route("rest-model", rf"/v2/models/{_NAME}(/versions/[0-9]+)?/generate_stream", "rest", streams=True),
    _Route("rest-model", _REST_MODEL, "rest"),
    _Route("rest-plain", _REST_PLAIN, "rest"),
)


def routes(
    keys: Sequence[ApiKey], models: Sequence[str], spec: GatewaySpec, split: Split | None = None
) -> dict[str, Any]:
    """An `envoy.config.route.v3.RouteConfiguration`. The first route that fits decides.

    Args:
        keys: the accepted keys.
        models: names of the models that are served; all other names are counted as one.
        spec: the gateway's spec, which has the time limits and rates.
        split: the models whose requests go partly to a candidate, and that candidate; None: none.
    """
    limits, split_models = spec.limits, split.models if split else ()
    callers = {
        key.sha256: {"name": key.name, "models": list(key.models), "limited": key.rate_per_s is not None}
        for key in keys
    }
    served = dict.fromkeys(models, WHOLE) | dict.fromkeys(split_models, SPLIT)
    # No hash of a key has a space in it.
    admitted = callers | {f"model {name}": how for name, how in served.items()}
    metadata = {"filter_metadata": {IDENTIFY: callers, ADMIT: admitted}}
    entries = [_pass(route, limits) for route in _ROUTES]
    about = next(entry for entry in entries if entry["name"] == "grpc-about")
    about["typed_per_filter_config"] = _about_rates(keys, spec)
    if split is not None:
        entries = [*_split(entries, split), *entries]
    closed = "closed here: only the server's owner can change it, and not through the gateway"
    entries.append(_refuse(403, closed, _CLOSED))
    # A route for it makes Envoy refuse it as an upgrade.
    entries.append(_refuse(403, "CONNECT", None))
    entries.append(_refuse(404, "nothing is here: wanted the inference protocol's gRPC service, or /v2", ""))
    host = {
        "name": "all",
        "domains": ["*"],
        # A request is gathered until its model is known.
        "request_body_buffer_limit": limits.request_mib << 20,
        "routes": [{**entry, "metadata": metadata} for entry in entries],
        "typed_per_filter_config": {LOCAL_RATE: key_rates(keys, SPACE)},
        **({"rate_limits": rate_limits(SPACE)} if limits.shared else {}),
    }
    return {
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "name": "gateway",
        "virtual_hosts": [host],
        "request_headers_to_remove": ["x-api-key", "authorization", CHOICE, REQUESTS],
        "response_headers_to_add": [{"header": {"key": "server-timing", "value": "upstream;dur=%RESPONSE_DURATION%"}}],
        "response_headers_to_remove": ["x-envoy-upstream-service-time"],
    }


def _about_rates(keys: Sequence[ApiKey], spec: GatewaySpec) -> dict[str, Any]:
    """Filters of calls that ask about a model: these have buckets of their own, which gateways do not share."""
    rates = {LOCAL_RATE: key_rates(keys, SPACE, ABOUT_BURST)}
    if spec.jwt and spec.jwt.rate_per_s:
        rates[SUBJECT_RATE] = subject_rates(spec.jwt, SPACE, ABOUT_BURST)
    return rates | (unshared() if spec.limits.shared else {})


def _split(entries: Sequence[dict[str, Any]], split: Split) -> list[dict[str, Any]]:
    """Routes of requests for a model that is being released, which `admission.lua` marks once it knows the model.
    Requests that ask for the candidate come first, then all others by weight."""
    released = []
    for entry in entries:
        protocol = entry["route"]["cluster"]
        if entry["name"] not in ("grpc-model", "grpc-about", "rest-model"):
            continue
        if protocol == "rest" and not split.candidate.rest:
            continue
        stable, candidate = protocol, f"{protocol}{CANDIDATE}"
        action = {name: value for name, value in entry["route"].items() if name != "cluster"}
        action["retry_policy"] = _RETRY | {"retry_priority": _OTHER_PRIORITY}
        if split.shadow and protocol == "grpc":
            action["request_mirror_policies"] = [
                {"cluster": SHADOW, "runtime_fraction": {"default_value": _fraction(split.shadow_percent)}}
            ]
        weights = {candidate: round(split.percent * 100), stable: 10_000 - round(split.percent * 100)}
        weighted = [{"name": name, "weight": weight} for name, weight in weights.items() if weight]
        for group, target in (
            ("candidate", {"cluster": candidate}),
            ("split", {"weighted_clusters": {"clusters": weighted}}),
        ):
            marked = {"filter": SPACE, "path": [{"key": "group"}], "value": {"string_match": {"exact": group}}}
            released.append(
                {**entry, "match": {**entry["match"], "dynamic_metadata": [marked]}, "route": {**action, **target}}
            )
    return released


def _fraction(percent: float) -> dict[str, Any]:
    return {"numerator": round(percent * 10_000), "denominator": "MILLION"}


def _pass(route: _Route, limits: GatewayLimits) -> dict[str, Any]:
    action: dict[str, Any] = {
        "cluster": route.protocol,
        "retry_policy": _RETRY,
        "idle_timeout": f"{limits.idle_s:.3f}s",
    }
    # A stream may be longer than a request.
    longest = f"{limits.stream_s if route.streams else limits.timeout_s:.3f}s"
    if route.protocol == "grpc":
        action["timeout"] = "0s"
        action["max_stream_duration"] = {"grpc_timeout_header_max": longest, "max_stream_duration": longest}
    else:
        # A replica's own proxy knows this machine's names alone, whatever callers know the gateway by.
        action["host_rewrite_literal"] = "127.0.0.1"
        action["timeout"] = longest
    match: dict[str, Any] = {"safe_regex": {"regex": route.pattern}}
    if route.protocol == "grpc":
        match["grpc"] = {}
    made = {"name": route.name, "match": match, "route": action}
    # Of the other two, what looks for the model gathers the message, or it is a stream.
    if route.name not in ("grpc-model", "grpc-about", "grpc-stream"):
        made["typed_per_filter_config"] = {
            BUFFER: {
                "@type": f"{_TYPE}.buffer.v3.BufferPerRoute",
                "buffer": {"max_request_bytes": limits.request_mib << 20},
            }
        }
    return made


# Where a replica has surely not begun: whether it may run twice, its caller knows and tries again.
_RETRY = {
    "retry_on": "connect-failure,refused-stream,reset-before-request,retriable-headers",
    # A model that is loaded again, as after the death of its Python process, is away for a moment at that replica
    # alone, and a replica that ends takes no new calls; saying so takes it no time, so that it would draw all requests.
    "retriable_headers": [
        {
            "name": "grpc-message",
            "string_match": {
                "safe_regex": {
                    "regex": r"(\[request id: [^\]]*\] )?(Request for unknown model: .*"
                    r" (has no available versions|is not at ready state)"
                    r"|Server is stopping, scheduler for model has stopped accepting new inference requests)"
                }
            },
        }
    ],
    "num_retries": 2,
    "retry_host_predicate": [
        {
            "name": "envoy.retry_host_predicates.previous_hosts",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
            },
        }
    ],
    # A server that refuses immediately has the fewest requests, and would be picked again and again.
    "host_selection_retry_max_attempts": 100,
    "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.100s"},
}
# A candidate that fails is left for the other replicas.
_OTHER_PRIORITY = {
    "name": "envoy.retry_priorities.previous_priorities",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
        "update_frequency": 1,
    },
}


def _refuse(status: int, words: str, pattern: str | None) -> dict[str, Any]:
    """A route that refuses all paths of a pattern; "" means all paths, None means CONNECT, which has no path."""
    where: dict[str, Any] = {"safe_regex": {"regex": pattern}} if pattern else {"prefix": "/"}
    if pattern is None:
        where = {"connect_matcher": {}}
    return {"name": "closed", "match": where, "direct_response": {"status": status, "body": {"inline_string": words}}}
