"""The parts of a model's signature that decide the way of its calls."""

from __future__ import annotations

from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from tritonkit.client.request import ModelState
from tritonkit.client.wire.signature import signature_from


def known(**config: Any) -> ModelState:
    """A model with one input and one output."""
    tensor = {"name": "x", "data_type": "TYPE_FP32", "dims": [2]}
    fields = {"input": [tensor], "output": [tensor | {"name": "y"}], "max_batch_size": 4} | config
    return ModelState(
        signature_from(
            service_pb2.ModelMetadataResponse(name="m", versions=["1"]), model_config_pb2.ModelConfig(**fields)
        )
    )


@pytest.mark.parametrize(
    ("config", "joinable"),
    [
        ({}, True),
        ({"max_batch_size": 0}, False),
        ({"max_batch_size": 1}, False),
        ({"input": [{"name": "x", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True}]}, False),
    ],
)
def test_what_can_be_joined(config: dict[str, Any], joinable: bool) -> None:
    """Only models that take more than one item, and whose tensors all have a batch axis."""
    assert (known(**config).joining.state != "refused") == joinable


def test_requests_are_prepared_once() -> None:
    """The same version and outputs give the same prepared request."""
    model = known()
    assert model.prepared("", None) is model.prepared("", None)
    assert model.prepared("", None) is not model.prepared("", ("y",))
