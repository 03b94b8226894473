"""The words of refusals by Envoy itself: as Triton writes them to REST, as they are to gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tritonkit.operate.gateway.spec import GatewayLimits

__all__ = ["MOST_HEADERS", "replies"]

MOST_HEADERS = 64
_CEL = "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"
_GRPC = "request.headers['content-type'].startsWith('application/grpc')"
_WORDS = "%LOCAL_REPLY_BODY%"
_IMPROPER = "refused as a malformed request: %RESPONSE_CODE_DETAILS%"
_INVALID, _EXHAUSTED = "3", "8"


def replies(limits: GatewayLimits) -> dict[str, Any]:
    """An `envoy.extensions.filters.network.http_connection_manager.v3.LocalReplyConfig`: the first match counts."""
    headers = f"the headers: found more, wanted {MOST_HEADERS} of {limits.header_kib} KiB at most"
    too_long = f"the request: found more, wanted {limits.request_mib} MiB at most"
    return {
        "mappers": [
            *_mappers(
                _begins("local_rate_limited", "request_rate_limited"),
                "too many requests of this key: wanted fewer in a second",
            ),
            *_mappers("response.code == 413", too_long, _EXHAUSTED),
            *_mappers("response.code == 431", headers),
            *_mappers("response.code == 426", "the version of HTTP: wanted HTTP/1.1 or HTTP/2"),
            # A transfer encoding that Envoy does not know is no fault of the server's.
            *_mappers("response.code == 501", "the request: found a transfer encoding that is not known", status=400),
            *_mappers(
                _begins("path_normalization_failed"),
                "the path: found an escaped slash, backslash or NUL, or a #; wanted none of these",
                _INVALID,
            ),
            *_mappers(_begins("upgrade_failed"), "an upgrade, or CONNECT: wanted plain HTTP/1.1 or HTTP/2"),
            *_mappers(_begins("http1.", "http2."), _IMPROPER, _INVALID),
            *_mappers("true", _WORDS),
        ]
    }


def _mappers(condition: str, words: str, grpc_status: str = "", status: int | None = None) -> Iterator[dict[str, Any]]:
    """Two mappers: one for gRPC, whose status follows from HTTP's unless it is given, and one for REST."""
    code = {} if status is None else {"status_code": status}
    header = {"header": {"key": "grpc-status", "value": grpc_status}}
    added = {"headers_to_add": [header]} if grpc_status else {}
    grpc = {"filter": _where(f"{condition} && {_GRPC}"), "body_format_override": _text(words)}
    yield {**grpc, **added, **code}
    yield {"filter": _where(condition), "body_format_override": _json(words), **code}


def _begins(*details: str) -> str:
    return "(" + " || ".join(f"response.code_details.startsWith('{detail}')" for detail in details) + ")"


def _where(condition: str) -> dict[str, Any]:
    chosen = {"name": "cel", "typed_config": {"@type": _CEL, "expression": condition}}
    return {"extension_filter": chosen}


def _json(words: str) -> dict[str, Any]:
    return {"json_format": {"error": words}}


def _text(words: str) -> dict[str, Any]:
    return {"text_format_source": {"inline_string": words}}
