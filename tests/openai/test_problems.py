"""Errors of the client as OpenAI's error bodies."""

from __future__ import annotations

import pytest

from tritonkit.errors import (
    CircuitOpen,
    ClientError,
    DeadlineExceeded,
    InferenceError,
    InvalidInput,
    ModelNotFound,
    ModelNotReady,
    Overloaded,
    ServerStopping,
    ServerUnavailable,
    Unsupported,
)
from tritonkit.openai.problems import problem_of


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (InvalidInput, 400),
        (ModelNotFound, 404),
        (ModelNotReady, 503),
        (Overloaded, 429),
        (Unsupported, 502),
        (DeadlineExceeded, 504),
        (ServerUnavailable, 503),
        (ServerStopping, 503),
        (CircuitOpen, 503),
        (InferenceError, 500),
        (ClientError, 500),
    ],
)
def test_each_error_has_a_status(kind: type[ClientError], status: int) -> None:
    """And a body with four fields; what the server said of its own fault is not in it."""
    problem = problem_of(kind("model m at 10.0.0.7:8001", found="Traceback: a secret"))
    assert problem.status == status
    error = problem.body()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert "10.0.0.7" not in error["message"]
    assert ("secret" in error["message"]) == (status == 400)


@pytest.mark.parametrize(
    ("details", "status", "message"),
    [
        ("INVALID_ARGUMENT: the prompt is too long", 400, "the prompt is too long"),
        ("UNAVAILABLE: 8 requests wait", 429, "there is no room for the request now"),
        ("UNAUTHENTICATED: no key", 502, "the server behind this one refuses its credentials"),
        ("INTERNAL: a secret", 500, "the model failed"),
        ("a secret: INVALID_ARGUMENT: x", 500, "the model failed"),
    ],
)
def test_a_model_s_error_goes_by_its_status(details: str, status: int, message: str) -> None:
    """With which it begins; a caller's mistake is told in the model's words."""
    problem = problem_of(InferenceError("model m", found=details))
    assert (problem.status, problem.message) == (status, message)


def test_a_place_in_a_schema_is_the_parameter() -> None:
    """Also where a keyword of it has a dollar."""
    found = "INVALID_ARGUMENT: response_format.json_schema.schema.$ref: found 'x', wanted a place of the same schema"
    assert problem_of(InferenceError("model m", found=found)).param == "response_format.json_schema.schema.$ref"
