"""Checks before every request: its caller, the number of concurrent requests, the size of its body."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tritonkit.openai.problems import Problem
from tritonkit.openai.settings import OpenAISettings, may_call

__all__ = ["Room", "body_of", "gate", "received", "refusal"]

_BODY_S = 30.0
"""Seconds in which a body must have come."""


def refusal(problem: Problem) -> JSONResponse:
    """A problem as a response."""
    headers = {}
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    if problem.status in (429, 503):
        headers["retry-after"] = "1"
    return JSONResponse(problem.body(), problem.status, headers)


def gate(app: ASGIApp, settings: OpenAISettings) -> ASGIApp:
    """The application behind a check of the caller; `/health` is open to all."""
    hosts = settings.hosts()

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            host = headers.get(b"host", b"").decode("latin-1")
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
            if hosts is not None and name.lower() not in hosts:
                problem = Problem(403, "this server does not have that host name", code="wrong_host")
                return await refusal(problem)(scope, receive, send)
            if sum(name == b"authorization" for name, _ in scope["headers"]) > 1:
                problem = Problem(401, "two Authorization headers", code="invalid_api_key")
                return await refusal(problem)(scope, receive, send)
            authorization = headers.get(b"authorization", b"")
            if settings.keys and scope["path"] != "/health" and not may_call(settings.keys, authorization):
                problem = Problem(401, "the API key is wrong or missing", code="invalid_api_key")
                return await refusal(problem)(scope, receive, send)
        return await app(scope, receive, send)

    return checked


class Room:
    """Places for concurrent requests.

    Args:
        most: the number of places.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """A place for one request.

        Raises:
            Problem: there is no free place.
        """
        if not self._left:
            raise Problem(429, "too many requests", kind="rate_limit_error", code="overloaded")
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1


async def body_of(request: Request, most: int) -> bytes:
    """A request's JSON, not yet parsed.

    A form's type is refused: a page in a browser may send forms anywhere, but JSON only to servers that allow it.

    Raises:
        Problem: the body is too large, too slow, or declared as something else.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Problem(415, "the content type is not application/json", code="invalid_content_type")
    return await received(request, most)


async def received(request: Request, most: int) -> bytes:
    """A request's body.

    Raises:
        Problem: it is too large or too slow.
    """
    too_large = Problem(413, f"the body is larger than {most} bytes", code="body_too_large")
    length = request.headers.get("content-length", "0")
    if len(length) > 18 or int(length) > most:
        raise too_large
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                data += part
                if len(data) > most:
                    raise too_large
    except TimeoutError:
        raise Problem(408, "the body did not come in time", code="body_too_slow") from None
    return bytes(data)
