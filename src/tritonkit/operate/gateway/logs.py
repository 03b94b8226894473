"""Records that the gateway writes of each request: a line of a log, and metrics by model and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonkit.operate.gateway.routes import SPACE

__all__ = [
    "RELEASE_LOG",
    "STRANGERS_LOG",
    "STRANGERS_RATE",
    "audit_logs",
    "release_log",
    "statistics",
    "strangers_rate",
]

STRANGERS_LOG = "strangers.jsonl"
"""The file next to the audit log for requests whose caller is not known."""
STRANGERS_RATE = "strangers.json"
"""A file that Envoy watches: the rate limit of these lines if they share standard output with the others."""
RELEASE_LOG = "release.log"
"""A log with a line for each request to a model while it is released. Fields: cluster, the server that answered, HTTP
status, gRPC status as a number, Envoy's flags, microseconds from the request's last byte to the answer's first, and
the key's name."""

_BUCKET = "strangers"
_LOGGERS = "type.googleapis.com/envoy.extensions.access_loggers"
_KEY, _MODEL = f"%DYNAMIC_METADATA({SPACE}:key)%", f"%DYNAMIC_METADATA({SPACE}:model)%"
_COUNTED = f"%DYNAMIC_METADATA({SPACE}:counted)%"
"""A key's name; all tokens share one name, because there may be as many subjects as callers."""

_SERVICE_TIME = "DS_RX_END:DS_TX_BEG"
"""Time from a request's last byte to its answer's first byte; a caller that sends or reads slowly does not add to it.
A request that was never sent whole has no such time, and neither has a stream that ends after its answer began."""

_FIELDS = {
    "time": "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%",
    "request_id": "%REQ(X-REQUEST-ID):36%",
    "key": _KEY,
    "model": _MODEL,
    "method": "%REQ(:METHOD):16%",
    "path": "%PATH(NQ:PATH):256%",
    "protocol": "%PROTOCOL%",
    "status": "%RESPONSE_CODE%",
    "grpc_status": "%GRPC_STATUS(SNAKE_STRING)%",
    "why": "%RESPONSE_CODE_DETAILS%",
    "flags": "%RESPONSE_FLAGS%",
    "request_bytes": "%BYTES_RECEIVED%",
    "response_bytes": "%BYTES_SENT%",
    "duration_ms": "%DURATION%",
    "upstream_ms": "%RESPONSE_DURATION%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "replica": "%UPSTREAM_HOST%",
    "caller": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "certificate": "%DOWNSTREAM_PEER_SUBJECT%",
}
"""Fields of a line. They hold no header, query or body of a request but its method and path, cut so that no line
exceeds 3 KiB. The gateway itself makes the request's ID."""


def audit_logs(file: Path | None, rate: dict[str, Any]) -> list[dict[str, Any]]:
    """Access logs with one JSON object per line: one for known callers (with a valid key or token), one for others.

    Unknown callers may send any number of requests, which must not push out known callers' lines. Their lines go to a
    file of their own or, if both logs share standard output, are limited in rate.

    Args:
        file: the log of known callers; None: both logs go to standard output.
        rate: Envoy's config source of `strangers_rate`.
    """
    if file is None:
        output = _json_lines("stream.v3.StdoutAccessLog")
        few = {"and_filter": {"filters": [_caller_known(False), _at_rate(rate)]}}
        return [
            {"name": "audit", "filter": _caller_known(True), **output},
            {"name": "strangers", "filter": few, **output},
        ]
    own, strangers = (
        _json_lines("file.v3.FileAccessLog", path=str(path)) for path in (file, file.with_name(STRANGERS_LOG))
    )
    return [
        {"name": "audit", "filter": _caller_known(True), **own},
        {"name": "strangers", "filter": _caller_known(False), **strangers},
    ]


def strangers_rate() -> dict[str, Any]:
    """Rate limit of unknown callers' lines: ten a second, bursts of 500. A pod's log of 50 MiB holds hours of them."""
    bucket = {"max_tokens": 500, "tokens_per_fill": 1, "fill_interval": "0.100s"}
    return {
        "resources": [
            {
                "@type": "type.googleapis.com/envoy.service.discovery.v3.Resource",
                "name": _BUCKET,
                "resource": {"@type": "type.googleapis.com/envoy.type.v3.TokenBucket", **bucket},
            }
        ]
    }


def _json_lines(kind: str, **more: str) -> dict[str, Any]:
    lines = {"log_format": {"json_format": _FIELDS, "omit_empty_values": False}}
    return {"typed_config": {"@type": f"{_LOGGERS}.{kind}", **lines, **more}}


def _caller_known(is_known: bool) -> dict[str, Any]:
    matcher = {"filter": SPACE, "path": [{"key": "key"}], "value": {"present_match": is_known}}
    return {"metadata_filter": {"matcher": matcher, "match_if_key_not_found": not is_known}}


def _at_rate(source: dict[str, Any]) -> dict[str, Any]:
    return {
        "extension_filter": {
            "name": "envoy.access_loggers.extension_filters.process_ratelimit",
            "typed_config": {
                "@type": f"{_LOGGERS}.filters.process_ratelimit.v3.ProcessRateLimitFilter",
                "dynamic_config": {"resource_name": _BUCKET, "config_source": source},
            },
        }
    }


def release_log(file: str, *, tokens: bool) -> dict[str, Any]:
    """An access log of only the requests that a release judges. Requests that chose their version are left out: testers
    must not decide, and the compared requests must be split at random.

    Args:
        tokens: whether callers with tokens are accepted.
    """
    fields = (
        "%UPSTREAM_CLUSTER_RAW%",
        "%UPSTREAM_HOST%",
        "%RESPONSE_CODE%",
        "%GRPC_STATUS_NUMBER%",
        "%RESPONSE_FLAGS%",
        f"%COMMON_DURATION({_SERVICE_TIME}:us)%",
        _COUNTED if tokens else _KEY,
    )
    marked = {"filter": SPACE, "path": [{"key": "group"}], "value": {"string_match": {"exact": "split"}}}
    return {
        "name": "release",
        "filter": {"metadata_filter": {"matcher": marked, "match_if_key_not_found": False}},
        "typed_config": {
            "@type": f"{_LOGGERS}.file.v3.FileAccessLog",
            "path": file,
            "log_format": {"text_format_source": {"inline_string": "\t".join(fields) + "\n"}},
        },
    }


def statistics(*, tokens: bool) -> dict[str, Any]:
    """`gateway.request_ms`, a histogram, and `gateway.requests` with each status.

    Args:
        tokens: whether callers with tokens are accepted.
    """
    model, key = (
        {"name": "model", "value_format": _MODEL},
        {"name": "key", "value_format": _COUNTED if tokens else _KEY},
    )
    code = {"name": "code", "value_format": "%RESPONSE_CODE%"}
    grpc = {"name": "grpc_status", "value_format": "%GRPC_STATUS(SNAKE_STRING)%"}
    return {
        "name": "statistics",
        "typed_config": {
            "@type": f"{_LOGGERS}.stats.v3.Config",
            "stat_prefix": "gateway",
            "histograms": [
                {
                    "stat": {"name": "request_ms", "tags": [model, key]},
                    "unit": "Milliseconds",
                    "value_format": f"%COMMON_DURATION({_SERVICE_TIME}:ms)%",
                }
            ],
            "counters": [{"stat": {"name": "requests", "tags": [model, key, code, grpc]}, "value_fixed": 1}],
        },
    }
