"""Requests through a PyTorch function: order of tensors, merging, and a failure in the middle of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from backend_batch import Network, Request, RequestError
from backend_config import TensorSpec
from pytorch_engine import Function


def network(call: Any, outputs: dict[str, int] | None = None) -> Network:
    """`call` on the inputs a and b, as the model `net`."""
    function = Function(torch, call, {"b": 1, "a": 0}, outputs or {"y": 0})
    specs = {name: TensorSpec(name, "FP32", (-1, 2)) for name in "ab"}
    return Network("net", function, specs, batched=True)


def request(count: int, value: float, output: str = "y") -> Request:
    """A request of `count` items: a all `value`, b all 1."""
    a = np.full((count, 2), value, np.float32)
    return Request({"b": np.ones((count, 2), np.float32), "a": a}, [output])


def test_tensors_go_by_position() -> None:
    """a is the first argument although the request has b first; outputs are told apart by number."""
    both = network(lambda a, b: (a - b, a + b), {"difference": 0, "sum": 1})
    (less,) = both.answer([request(1, 5.0, "difference")])
    (more,) = both.answer([request(1, 5.0, "sum")])
    assert not isinstance(less, RequestError)
    assert not isinstance(more, RequestError)
    assert less["difference"].tolist() == [[4.0, 4.0]]
    assert more["sum"].tolist() == [[6.0, 6.0]]


def test_requests_are_merged() -> None:
    """Two requests make one call, and each gets its own rows."""
    sizes = []

    def call(a: Any, b: Any) -> Any:
        sizes.append(len(a))
        return a * b

    first, second = network(call).answer([request(1, 2.0), request(3, 3.0)])
    assert sizes == [4]
    assert not isinstance(first, RequestError)
    assert not isinstance(second, RequestError)
    assert first["y"].tolist() == [[2.0, 2.0]]
    assert second["y"].shape == (3, 2)


def test_one_bad_request_does_not_fail_its_neighbors() -> None:
    """PyTorch's last line goes to the request it is about."""

    def call(a: Any, b: Any) -> Any:
        torch._assert_async(torch.all(a < 10), "too large")
        return a + b

    good, bad = network(call).answer([request(1, 1.0), request(1, 99.0)])
    assert not isinstance(good, RequestError)
    assert good["y"].tolist() == [[2.0, 2.0]]
    assert isinstance(bad, RequestError)
    assert "too large" in str(bad)


def test_an_output_that_is_not_there_is_named() -> None:
    """A configuration with more outputs than the model gives."""
    (answer,) = network(lambda a, b: a, {"y": 0, "z": 1}).answer([request(1, 1.0, "z")])
    assert isinstance(answer, RequestError)
    assert "output 'z' is number 1; the model gives 1" in str(answer)


@pytest.mark.parametrize("mode", [True, False])
def test_no_gradients_are_kept(mode: bool) -> None:
    """In inference mode and without it."""
    layer = torch.nn.Linear(2, 2)
    function = Function(torch, lambda a: layer(a), {"a": 0}, {"y": 0}, inference_mode=mode)
    outputs = function.run([{"a": np.ones((1, 2), np.float32)}], ["y"])
    assert outputs["y"].shape == (1, 2)
