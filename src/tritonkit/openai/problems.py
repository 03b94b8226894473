"""Failures of requests in the form of OpenAI's API: a status and `{"error": {...}}`."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from tritonkit.errors import (
    ClientError,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    ServerUnavailable,
    Unsupported,
)

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["Problem", "has_status", "invalid", "problem_of", "unread", "within"]

_INVALID = "invalid_request_error"
_PARAM = re.compile(r"((?:ignore_eos|messages|min_tokens|response_format|tools|tool_choice)[\w.$]*): ")
"""The parameter at the beginning of a model's own message."""
_MOST_SHOWN = 1000
"""Characters of a message; a model's own text may be long."""


class Problem(Exception):
    """The reason why a request is not answered.

    Args:
        status: the HTTP status.
        message: the text for a person.
        kind: OpenAI's `type`; by default a caller's mistake for a status below 500, else a server error.
        param: the name of the invalid parameter.
        code: the error code for programs.
    """

    def __init__(
        self, status: int, message: str, *, kind: str = "", param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or (_INVALID if status < 500 else "server_error")
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        facts = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": facts}


def invalid(message: str, param: str | None = None, code: str | None = None) -> Problem:
    """A caller's mistake."""
    return Problem(400, message, param=param, code=code)


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Work that has to end in this time.

    Raises:
        Problem: it takes longer.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Problem(504, "no answer within the time allowed", kind="timeout", code="deadline_exceeded") from None


def unread(error: ValidationError) -> Problem:
    """The first error in a body, with the parameter's name: `messages.0.content`."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    param = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return invalid(f"{param}: this server does not know it", param, "unknown_parameter")
    if first["type"] == "missing":
        return invalid(f"{param}: it is missing", param, "missing_required_parameter")
    return invalid(f"{param}: {first['msg'].removeprefix('Value error, ')}", param, "invalid_value")


_KINDS: dict[type[ClientError], tuple[int, str, str, str]] = {
    InvalidInput: (400, "", "invalid_value", _INVALID),
    ModelNotReady: (503, "the model is not ready", "model_not_ready", ""),
    ModelNotFound: (404, "the model does not exist", "model_not_found", ""),
    Overloaded: (429, "there is no room for the request now", "overloaded", "rate_limit_error"),
    Unsupported: (502, "the server behind this one lacks a feature that this needs", "unsupported", ""),
    DeadlineExceeded: (504, "no answer within the time allowed", "deadline_exceeded", "timeout"),
    ServerUnavailable: (503, "no server answers", "unavailable", ""),
    InferenceError: (500, "the model failed", "model_failed", ""),
    ClientError: (500, "the call failed", "call_failed", ""),
}
"""Status, message (empty: the error's own), code and type. Servers' messages about their faults stay in our log."""

_FULL = _KINDS[Overloaded]
_REFUSED = (502, "the server behind this one refuses its credentials", "credentials_refused", "")
_BY_STATUS = {
    "INVALID_ARGUMENT": _KINDS[InvalidInput],
    "OUT_OF_RANGE": _KINDS[InvalidInput],
    "UNAVAILABLE": _FULL,
    "RESOURCE_EXHAUSTED": _FULL,
    "DEADLINE_EXCEEDED": _KINDS[DeadlineExceeded],
    "UNAUTHENTICATED": _REFUSED,
    "PERMISSION_DENIED": _REFUSED,
}
"""Problems by gRPC's status, with which an `InferenceError` begins. Triton gives errors in a stream no status, so a
model writes it before its text, as `INVALID_ARGUMENT: ...`."""


_OWN_KEY = {
    "UNAUTHENTICATED": Problem(401, "a wrong API key", code="invalid_api_key"),
    "PERMISSION_DENIED": Problem(
        404, "the model does not exist, or this key may not use it", param="model", code="model_not_found"
    ),
    "RESOURCE_EXHAUSTED": Problem(
        429, "too many requests of this key, or no room for them", kind="rate_limit_error", code="rate_limit_exceeded"
    ),
}
"""Problems by gRPC's status, for a gateway's answers to a caller whose own key was forwarded."""


def has_status(error: ClientError, name: str) -> bool:
    """Whether a server has answered with this gRPC status."""
    return isinstance(error, InferenceError) and error.found.startswith(f"{name}: ")


def problem_of(error: ClientError, own_key: bool = False) -> Problem:
    """The problem that reports a client's error to our caller.

    Args:
        error: the client's error.
        own_key: whether the call was made under the caller's own key.
    """
    if own_key:
        for name, problem in _OWN_KEY.items():
            if has_status(error, name):
                return problem
    row = next(_KINDS[kind] for kind in type(error).__mro__ if kind in _KINDS)
    details = error.found
    if type(error) is InferenceError:
        name, _, text = details.partition(": ")
        if name in _BY_STATUS:
            row, details = _BY_STATUS[name], text
    status, message, code, kind = row
    named = _PARAM.match(details) if not message else None
    return Problem(status, message or details[:_MOST_SHOWN], kind=kind, param=named and named[1], code=code)
