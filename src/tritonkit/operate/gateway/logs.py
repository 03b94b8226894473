"""What the gateway says of each request: a line of the audit log, and metrics by model and key."""

from __future__ import annotations

from typing import Any

from tritonkit.operate.gateway.routes import SPACE

__all__ = ["RELEASE_LOG", "audit_log", "release_log", "statistics"]

RELEASE_LOG = "release.log"
"""A line for each request to a model while it is released: its cluster, who answered, HTTP status, gRPC status as a
number, Envoy's flags, microseconds from the request's first byte to the answer's last."""

_LOGGERS = "type.googleapis.com/envoy.extensions.access_loggers"
_KEY, _MODEL = f"%DYNAMIC_METADATA({SPACE}:key)%", f"%DYNAMIC_METADATA({SPACE}:model)%"
_COUNTED = f"%DYNAMIC_METADATA({SPACE}:counted)%"
"""A key's name; of tokens one for all, because their subjects are as many as there are callers."""

_FIELDS = {
    "time": "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "key": _KEY,
    "model": _MODEL,
    "method": "%REQ(:METHOD)%",
    "path": "%PATH(NQ):512%",
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
"""No header, query or body of a caller's but its path and the id of its request."""


def audit_log(file: str | None) -> dict[str, Any]:
    """An access log of one JSON object in a line.

    Args:
        file: None: standard output.
    """
    fields = {"log_format": {"json_format": _FIELDS, "omit_empty_values": False}}
    if file is None:
        return {
            "name": "audit",
            "typed_config": {
                "@type": f"{_LOGGERS}.stream.v3.StdoutAccessLog", **fields,
            },
        }  # fmt: skip
    return {
        "name": "audit",
        "typed_config": {"@type": f"{_LOGGERS}.file.v3.FileAccessLog", "path": file, **fields},
    }


def release_log(file: str) -> dict[str, Any]:
    """An access log of the requests that a release judges, and of no others. Those that chose their version are none:
    a tester's must not decide, and what is compared must be spread by chance."""
    fields = (
        "%UPSTREAM_CLUSTER_RAW%", "%UPSTREAM_HOST%", "%RESPONSE_CODE%", "%GRPC_STATUS_NUMBER%", "%RESPONSE_FLAGS%",
        "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%",
    )  # fmt: skip
    marked = {
        "filter": SPACE,
        "path": [{"key": "group"}],
        "value": {"string_match": {"exact": "split"}},
    }
    return {
        "name": "release",
        "filter": {"metadata_filter": {"matcher": marked, "match_if_key_not_found": False}},
        "typed_config": {
            "@type": f"{_LOGGERS}.file.v3.FileAccessLog", "path": file,
            "log_format": {"text_format_source": {"inline_string": "\t".join(fields) + "\n"}},
        },
    }  # fmt: skip


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
    return {"name": "statistics", "typed_config": {
        "@type": f"{_LOGGERS}.stats.v3.Config",
        "stat_prefix": "gateway",
        "histograms": [{
            "stat": {"name": "request_ms", "tags": [model, key]}, "unit": "Milliseconds", "value_format": "%DURATION%",
        }],
        "counters": [{
            "stat": {"name": "requests", "tags": [model, key, code, grpc]}, "value_fixed": 1,
        }],
    }}  # fmt: skip
