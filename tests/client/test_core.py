"""Requests and answers, without a wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from tritonkit.client.core import checked_inputs, decode_response, encode_request
from tritonkit.client.signature import ModelSignature, signature_from
from tritonkit.errors import InferenceError, InvalidInput


def signature(**config: Any) -> ModelSignature:
    """What Triton would say of a model with an image, a mask one may leave out, and a score."""
    image = {"name": "image", "data_type": "TYPE_FP32", "dims": [3, -1]}
    mask = {"name": "mask", "data_type": "TYPE_BOOL", "dims": [1], "optional": True}
    score = {"name": "score", "data_type": "TYPE_FP32", "dims": [1]}
    fields = {"input": [image, mask], "output": [score], "max_batch_size": 4} | config
    return signature_from(
        service_pb2.ModelMetadataResponse(name="m", versions=["2"]),
        model_config_pb2.ModelConfig(**fields),
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


def test_a_request_says_what_was_given() -> None:
    """Names, types, shapes, bytes, version, outputs and the time allowed stand in the message."""
    request = encode_request(
        signature(), {"image": IMAGE}, version="2", outputs=["score"], timeout_s=0.25
    )
    assert (request.model_name, request.model_version) == ("m", "2")
    tensor = request.inputs[0]
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("image", "FP32", [2, 3, 5])
    assert request.raw_input_contents[0] == IMAGE.tobytes()
    assert [output.name for output in request.outputs] == ["score"]
    assert request.parameters["timeout"].int64_param == 250_000


def test_one_output_may_be_asked_for_by_its_name_alone() -> None:
    """A str is one name, not a row of letters."""
    request = encode_request(signature(), {"image": IMAGE}, outputs="score")
    assert [output.name for output in request.outputs] == ["score"]


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
        encode_request(signature(), inputs)
    assert says in str(caught.value)


def test_an_unknown_output_is_refused_with_the_nearest_name() -> None:
    """A misspelt output never leaves the machine."""
    with pytest.raises(InvalidInput, match="did you mean score"):
        encode_request(signature(), {"image": IMAGE}, outputs=["scores"])


def test_more_than_a_message_can_hold_is_refused() -> None:
    """2 GiB of data is an error of ours, before anything is copied."""
    huge = np.broadcast_to(np.float32(0), (1, 3, 2**28))
    with pytest.raises(InvalidInput, match="protobuf message ends at 2 GiB"):
        encode_request(signature(), {"image": huge})


def response(**tensor: Any) -> Any:
    """A server's answer with one output."""
    answer = service_pb2.ModelInferResponse(model_name="m", model_version="2")
    answer.outputs.add(**{"name": "score", "datatype": "FP32", "shape": [1, 2]} | tensor)
    answer.raw_output_contents.append(np.array([[1, 2]], np.float32).tobytes())
    return answer


def test_an_answer_becomes_arrays() -> None:
    """Outputs come back by name in their shape."""
    assert decode_response(response())["score"].tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("tensor", [{"shape": [1, 3]}, {"datatype": "FP99"}, {"datatype": "BYTES"}])
def test_an_answer_that_contradicts_itself_is_an_error(tensor: dict[str, Any]) -> None:
    """A shape its bytes do not fill, or a type nobody knows, is not passed on."""
    with pytest.raises(InferenceError, match="cannot be read"):
        decode_response(response(**tensor))


def test_an_answer_without_bytes_is_an_error() -> None:
    """An output that came without its data is not skipped."""
    answer = response()
    answer.outputs.add(name="more", datatype="FP32", shape=[1])
    with pytest.raises(InferenceError, match="cannot be read"):
        decode_response(answer)
