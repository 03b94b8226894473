"""Events of AWS Lambda: a request of the protocol itself, or HTTP as a function's URL and API Gateway hand it on.

HTTP comes as payload format 2.0: https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tritonkit_lambda.errors import Failed, RefusedRequest
from tritonkit_lambda.protocol import parse, read_request, write_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tritonkit_lambda.start import Function

JSON_LENGTH = "inference-header-content-length"
_MODEL = re.compile(r"/v2/models/(?P<name>[^/]+)(/versions/(?P<version>[^/]+))?(/(?P<what>infer|ready))?")
_LONGEST_NUMBER = 20
_HEALTH = ("/v2/health/live", "/v2/health/ready")


def answer(function: Function, event: Any) -> dict[str, Any]:
    """The function's result for an event.

    Raises:
        Failed: the model has failed, and the event was not HTTP.
    """
    if _is_http(event):
        return _answer_http(function, event)
    try:
        if not isinstance(event, dict) or "inputs" not in event:
            raise RefusedRequest(_unknown(event))
        request = read_request(event, b"", function.signature)
        if any(request.outputs.values()):
            raise RefusedRequest("binary_data: bytes after the JSON are for HTTP; wanted an answer in JSON")
        return write_response(request, function.run(request), function.signature)[0]
    except RefusedRequest as refused:
        return {"error": str(refused)}


def _is_http(event: Any) -> bool:
    context = event.get("requestContext") if isinstance(event, dict) else None
    has_http = isinstance(context, dict) and isinstance(context.get("http"), dict)
    return has_http and bool(event.get("version") == "2.0")


def _unknown(event: Any) -> str:
    if isinstance(event, dict) and "httpMethod" in event:
        return "the event: payload format 1.0 of API Gateway; wanted 2.0 (HTTP API, function URL)"
    return (
        "the event: wanted a request of the Open Inference Protocol, an object with `inputs`, or HTTP in payload"
        " format 2.0"
    )


def _answer_http(function: Function, event: dict[str, Any]) -> dict[str, Any]:
    try:
        return _routed(function, event)
    except RefusedRequest as refused:
        return _json(refused.status, {"error": str(refused)})
    except Failed as failed:
        return _json(500, {"error": str(failed)})


def _routed(function: Function, event: dict[str, Any]) -> dict[str, Any]:
    method, path = str(event["requestContext"]["http"].get("method")), _path(event)
    signature = function.signature
    if path in _HEALTH:
        _need(method, "GET")
        return _json(200, {"live" if path.endswith("live") else "ready": True})
    if path == "/v2":
        _need(method, "GET")
        about = {"name": "tritonkit", "version": function.about, "extensions": ["binary_tensor_data"]}
        return _json(200, about)
    match = _MODEL.fullmatch(path)
    if not match:
        raise RefusedRequest(f"{path[:200]}: there is no such path", 404)
    name, version = unquote(match["name"]), match["version"]
    if name != signature.name or version not in (None, signature.version):
        requested = name if version is None else f"{name}, version {version}"
        raise RefusedRequest(f"model {requested[:200]!r}: wanted {signature.name!r}, version {signature.version}", 404)
    if match["what"] == "infer":
        _need(method, "POST")
        return _infer(function, event)
    _need(method, "GET")
    ready = {"name": name, "ready": True}
    return _json(200, ready if match["what"] else signature.metadata())


def _infer(function: Function, event: dict[str, Any]) -> dict[str, Any]:
    body, headers = _body(event), _headers(event)
    if headers.get("content-encoding", "identity") != "identity":
        raise RefusedRequest("content-encoding: wanted none", 415)
    length = headers.get(JSON_LENGTH)
    size = len(body) if length is None else _length(length, len(body))
    request = read_request(parse(body[:size]), body[size:], function.signature)
    message, behind = write_response(request, function.run(request), function.signature)
    if not behind:
        return _json(200, message)
    text = json.dumps(message).encode()
    return {
        "statusCode": 200,
        "headers": {"content-type": "application/octet-stream", JSON_LENGTH: str(len(text))},
        "isBase64Encoded": True,
        "body": base64.b64encode(text + behind).decode(),
    }


def _path(event: dict[str, Any]) -> str:
    """The path without the stage that API Gateway may prepend."""
    path = str(event.get("rawPath", ""))
    stage = event["requestContext"].get("stage", "$default")
    path = path.removeprefix(f"/{stage}") if stage != "$default" else path
    return path.rstrip("/") or "/"


def _headers(event: dict[str, Any]) -> Mapping[str, str]:
    headers = event.get("headers")
    if not isinstance(headers, dict):
        return {}
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _body(event: dict[str, Any]) -> bytes:
    body = event.get("body") or ""
    if not isinstance(body, str):
        raise RefusedRequest("the body: wanted a text")
    if not event.get("isBase64Encoded"):
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedRequest("the body: isBase64Encoded, and it is not base64") from None


def _length(text: str, most: int) -> int:
    # Python takes no longer numbers than 4300 digits, and no body is as long as those of 20.
    good = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER
    if not good or int(text) > most:
        raise RefusedRequest(f"{JSON_LENGTH}: found {text[:20]!r}, wanted 0 to {most}, the body's bytes")
    return int(text)


def _need(method: str, allowed: str) -> None:
    if method != allowed:
        raise RefusedRequest(f"method {method[:20]}: wanted {allowed}", 405)


def _json(status: int, message: Any) -> dict[str, Any]:
    return {"statusCode": status, "headers": {"content-type": "application/json"}, "body": json.dumps(message)}
