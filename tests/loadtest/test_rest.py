"""The REST wire: bytes there, arrays back, and every way it can fail."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from loadtest import rest
from tritonkit.client import ModelSignature, TensorSpec
from tritonkit.client.wire.tensors import to_raw
from tritonkit.errors import InvalidInput, ServerUnavailable, UsageError

SIGNATURE = ModelSignature(
    name="digits",
    versions=("1",),
    inputs={"image": TensorSpec("image", "BYTES", (1,), batched=True)},
    outputs={},
    max_batch_size=4,
)


def test_a_request_is_json_and_then_the_bytes() -> None:
    """The header's length is sent, shapes and sizes stand in it, the tensor follows as it is."""
    call = rest.encode(SIGNATURE, {"image": b"\x89PNG"})
    length = int(call.headers[rest.LENGTH_HEADER])
    header = json.loads(call.body[:length])
    assert call.path == "/v2/models/digits/infer"
    assert header["inputs"] == [
        {"name": "image", "datatype": "BYTES", "shape": [1, 1], "parameters": {"binary_data_size": 8}}
    ]
    assert call.body[length:] == b"\x04\x00\x00\x00\x89PNG"


def test_an_input_that_does_not_fit_is_refused_before_sending() -> None:
    """An input is refused with the client's own words."""
    with pytest.raises(InvalidInput):
        rest.encode(SIGNATURE, {"image": 3.5})


def answer(arrays: dict[str, tuple[str, np.ndarray]]) -> tuple[bytes, int]:
    """A response's body as Triton writes it, and the length of its JSON."""
    raws = [to_raw(array, datatype) for datatype, array in arrays.values()]
    outputs = [
        {"name": name, "datatype": datatype, "shape": array.shape, "parameters": {"binary_data_size": len(raw)}}
        for (name, (datatype, array)), raw in zip(arrays.items(), raws, strict=True)
    ]
    header = json.dumps({"outputs": outputs}).encode()
    return b"".join([header, *raws]), len(header)


def test_an_answer_of_several_outputs_is_read() -> None:
    """Each from its own place in the bytes."""
    label = np.array([[b"3", b"8"]], dtype=object)
    score = np.array([[0.9, 0.1]], np.float32)
    outputs = rest.decode(*answer({"label": ("BYTES", label), "score": ("FP32", score)}))
    assert outputs["label"].tolist() == label.tolist()
    np.testing.assert_array_equal(outputs["score"], score)
    assert [rest.size_of(array) for array in outputs.values()] == [2, 8]


def test_a_cut_answer_is_not_read_as_a_short_one() -> None:
    """Bytes that do not fill the shape are an error."""
    body, length = answer({"score": ("FP32", np.ones((1, 4), np.float32))})
    with pytest.raises(ValueError, match="reshape"):
        rest.decode(body[:-4], length)


@pytest.mark.parametrize("address", ["nonsense", "host:", ":8000", "host:99999"])
def test_an_address_without_host_or_port_is_refused(address: str) -> None:
    """Before anything is sent."""
    with pytest.raises(UsageError, match="no host and port"):
        rest.connect(address)


def test_without_a_server_the_error_names_the_option() -> None:
    """No server listens on port 1."""
    with pytest.raises(ServerUnavailable) as caught:
        rest.check_ready("127.0.0.1:1", 2.0)
    assert "--http-host" in caught.value.todo


def test_a_lost_connection_is_the_servers_absence() -> None:
    """A run recognizes by this error that the server is gone."""

    class Broken:
        def post(self, *_: Any, **__: Any) -> Any:
            raise ConnectionResetError("reset by peer")

    with pytest.raises(ServerUnavailable, match="digits"):
        rest.infer(Broken(), rest.encode(SIGNATURE, {"image": b"x"}))
