"""Callers' inputs, checked before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from tritonkit.client.inputs import checked_inputs, checked_outputs, items_in, merged_inputs
from tritonkit.client.wire.signature import ModelSignature, signature_from
from tritonkit.errors import InvalidInput


def signature(**config: Any) -> ModelSignature:
    """Triton's metadata of a model with an image, an optional mask, and a score."""
    image = {"name": "image", "data_type": "TYPE_FP32", "dims": [3, -1]}
    mask = {"name": "mask", "data_type": "TYPE_BOOL", "dims": [1], "optional": True}
    score = {"name": "score", "data_type": "TYPE_FP32", "dims": [1]}
    fields = {"input": [image, mask], "output": [score], "max_batch_size": 4} | config
    return signature_from(
        service_pb2.ModelMetadataResponse(name="m", versions=["2"]), model_config_pb2.ModelConfig(**fields)
    )


IMAGE = np.zeros((2, 3, 5), np.float32)


def test_a_signature_reads_the_configuration() -> None:
    """Shapes of items, the types' names on the wire, and which inputs may be left out."""
    text = {"name": "text", "data_type": "TYPE_STRING", "dims": [1]}
    read = signature(input=[text], max_batch_size=0)
    assert read.versions == ("2",)
    assert read.inputs["text"].datatype == "BYTES"
    assert not read.inputs["text"].batched
    assert signature().inputs["image"].dims == (3, -1)
    assert signature().inputs["image"].batched
    assert [spec.optional for spec in signature().inputs.values()] == [False, True]


def test_shape_tensors_have_no_batch_axis() -> None:
    """TensorRT's shape tensors stay as they are even where the model batches."""
    sizes = {"name": "s", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True}
    arrays = checked_inputs(signature(input=[sizes]), {"s": [5, 6]})
    assert arrays["s"].tolist() == [5, 6]


def test_one_output_may_be_asked_for_by_its_name_alone() -> None:
    """A str is one name, not a row of letters."""
    assert checked_outputs(signature(), "score") == ("score",)
    assert checked_outputs(signature(), ["score"]) == ("score",)
    assert checked_outputs(signature(), None) is None


def test_items_are_counted_on_the_batch_axis() -> None:
    """A model without one takes one item, whatever its shape."""
    assert items_in(signature(), {"image": IMAGE}) == 2
    assert items_in(signature(max_batch_size=0), {"image": IMAGE}) == 1


def test_an_input_given_twice_is_refused() -> None:
    """A name in `inputs` and as an argument has two values."""
    assert merged_inputs("m", {"a": 1}, {"b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(InvalidInput, match="given twice"):
        merged_inputs("m", {"a": 1}, {"a": 2})


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"imag": IMAGE}, "did you mean image?"),
        ({}, "no value for input image"),
        ({"mask": True}, "no value for input image"),
        ({"image": IMAGE, "mask": [True]}, "image 2, mask 1"),
        ({"image": np.zeros((5, 3, 5), np.float32)}, "at most 4"),
        ({"image": np.zeros((2, 4, 5), np.float32)}, "axis 0 of an item is 4"),
    ],
)
def test_bad_inputs_are_refused_before_sending(inputs: dict[str, Any], says: str) -> None:
    """Every refusal is an InvalidInput that names the model and what to change."""
    with pytest.raises(InvalidInput, match="model m") as caught:
        checked_inputs(signature(), inputs)
    assert says in str(caught.value)


def test_an_unknown_output_is_refused_with_the_nearest_name() -> None:
    """A misspelled output never leaves the machine."""
    with pytest.raises(InvalidInput, match="did you mean score"):
        checked_outputs(signature(), ["scores"])


def test_more_than_a_message_can_hold_is_refused() -> None:
    """2 GiB of data is an error of ours, before anything is copied."""
    huge = np.broadcast_to(np.float32(0), (1, 3, 2**28))
    with pytest.raises(InvalidInput, match="protobuf message holds at most 2 GiB"):
        checked_inputs(signature(), {"image": huge})
