"""The transport shipped for users' own tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tritonkit.client import Client, FakeModel, MemoryTransport
from tritonkit.errors import InferenceError, InvalidInput, ServerUnavailable


def model(function: Any, datatype: str = "FP32") -> FakeModel:
    """One input, one output, both two numbers."""
    return FakeModel(
        inputs={"x": (datatype, [2])}, outputs={"y": (datatype, [2])}, function=function
    )


def call(fake: FakeModel, value: Any) -> Any:
    """Its answer to one value."""
    with Client(transport=MemoryTransport({"m": fake})) as client:
        return client.model("m").predict(x=value)["y"]


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "INT8", "UINT64"])
def test_functions_see_the_declared_type(datatype: str) -> None:
    """The function gets what a model behind the wire would get, batch axis first."""
    seen: list[Any] = []

    def remember(given: Mapping[str, Any]) -> Mapping[str, Any]:
        seen.append(given["x"])
        return {"y": given["x"]}

    assert call(model(remember, datatype), [1, 2]).tolist() == [[1, 2]]
    assert seen[0].shape == (1, 2)
    assert seen[0].dtype == np.dtype(
        {"FP16": "f2", "INT8": "i1", "UINT64": "u8"}.get(datatype, "f4")
    )


def test_errors_of_ours_pass_through() -> None:
    """A test can have the server fail in any way a real one can."""

    def down(given: Any) -> Any:
        raise ServerUnavailable("memory", found="switched off")

    with pytest.raises(ServerUnavailable, match="switched off"):
        call(model(down), [1, 2])


@pytest.mark.parametrize(
    ("gives", "error"),
    [
        ({}, InferenceError),
        ({"y": [1.0, 2.0, 3.0]}, InvalidInput),
        ({"y": ["a", "b"]}, InvalidInput),
    ],
)
def test_a_function_that_breaks_its_own_promise(gives: Any, error: type[Exception]) -> None:
    """An output that is missing or does not fit what the fake declares is told, not passed on."""
    with pytest.raises(error, match="output y"):
        call(model(lambda given: gives), [1, 2])


def test_a_wrong_datatype_is_refused_when_the_model_is_asked_for() -> None:
    """A type Triton does not have is an error, not a tensor of something."""
    fake = model(lambda given: given, "FP31")
    with pytest.raises(ValueError, match="TYPE_FP31"):
        call(fake, [1, 2])
