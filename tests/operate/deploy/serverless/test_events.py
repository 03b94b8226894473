"""Events through the real runtime client: answers, and one clear refusal for each mistake."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.runtime_api import Function, http_event
from tests.conftest import PROJECT

pytestmark = pytest.mark.slow
"""The function is packaged and started first."""

INFER = "/v2/models/digits/infer"
SEVEN = PROJECT / "models" / "digits" / "examples" / "seven.png"
BINARY = "Inference-Header-Content-Length"


def body(answer: Any) -> Any:
    """The JSON of an HTTP answer."""
    assert answer["headers"]["content-type"] == "application/json"
    return json.loads(answer["body"])


def test_a_request_of_the_protocol_is_answered(digits: Function, example: Any) -> None:
    """The event is the request, the result the response, with the id that it brought."""
    outcome = digits.invoke(example | {"id": "42"})
    assert not outcome.failed
    assert outcome.body["id"] == "42"
    label, score = outcome.body["outputs"]
    assert (label["name"], label["datatype"], label["shape"]) == ("label", "BYTES", [1, 3])
    assert label["data"][0] == "7"
    assert score["shape"] == [1, 3]
    assert score["data"][0] > 0.9


@pytest.mark.parametrize("stage", ["$default", "prod"])
def test_http_with_json_is_answered_alike(digits: Function, example: Any, stage: str) -> None:
    """A function's URL, and an API with a stage before the path."""
    direct = digits.invoke(example).body
    answer = digits.invoke(http_event(INFER, json.dumps(example).encode(), stage=stage)).body
    assert answer["statusCode"] == 200
    assert body(answer) == direct
    text = http_event(INFER, stage=stage) | {"body": json.dumps(example), "isBase64Encoded": False}
    assert body(digits.invoke(text).body) == direct


def test_a_picture_goes_as_bytes_behind_the_json(digits: Function, example: Any) -> None:
    """The protocol's binary data, in and out, as Triton's HTTP clients send it."""
    import tritonclient.http as triton
    from tritonclient.utils import deserialize_bytes_tensor

    picture = triton.InferInput("image", [1, 1], "BYTES")
    import numpy as np

    picture.set_data_from_numpy(np.array([[SEVEN.read_bytes()]], dtype=object), binary_data=True)
    request, length = triton.InferenceServerClient.generate_request_body([picture])
    answer = digits.invoke(http_event(INFER, request, headers={BINARY: str(length)})).body
    assert answer["statusCode"] == 200
    assert answer["isBase64Encoded"]
    raw = base64.b64decode(answer["body"])
    at = int(answer["headers"][BINARY.lower()])
    label, score = json.loads(raw[:at])["outputs"]
    labels = deserialize_bytes_tensor(raw[at : at + label["parameters"]["binary_data_size"]])
    scores = np.frombuffer(raw[-score["parameters"]["binary_data_size"] :], np.float32)
    direct = digits.invoke(example).body["outputs"]
    assert [label.decode() for label in labels] == direct[0]["data"]
    assert scores.tolist() == direct[1]["data"]


def test_a_batch_is_answered_item_by_item(digits: Function, example: Any) -> None:
    """Sixty-four at most, as in Triton; one output if one is requested."""
    [image] = example["inputs"]
    many = image | {"shape": [64, 1], "data": image["data"] * 64}
    [score] = digits.invoke({"inputs": [many], "outputs": [{"name": "score"}]}).body["outputs"]
    assert score["shape"] == [64, 3]
    assert score["data"][:3] == pytest.approx(score["data"][-3:])


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        ("/v2/models/digits/ready", {"name": "digits", "ready": True}),
    ],
)
def test_health_is_answered(digits: Function, path: str, answer: Any) -> None:
    """Health answers follow the protocol."""
    assert body(digits.invoke(http_event(path, method="GET")).body) == answer


def test_metadata_says_what_the_model_takes(digits: Function) -> None:
    """Names, datatypes and shapes, the batch free."""
    metadata = body(digits.invoke(http_event("/v2/models/digits/versions/1", method="GET")).body)
    assert metadata["inputs"] == [{"name": "image", "datatype": "BYTES", "shape": [-1, 1]}]
    assert [output["shape"] for output in metadata["outputs"]] == [[-1, 3], [-1, 3]]


TENSOR = {"name": "image", "datatype": "BYTES", "shape": [1, 1], "data": ["abc"]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data": ["abc"]}, "model 'digits_decode_image': input 'image', item 0: not a PNG, JPEG or WebP"),
        ({"data": [1]}, "inputs[0].data[0]: found 1, wanted a text"),
        ({"data": ["a", "b"]}, "inputs[0].data: found 2 elements, wanted 1: its shape is [1, 1]"),
        ({"data": [["a"], "b"]}, "inputs[0].data: found lists mixed with other values"),
        ({"data": None}, "inputs[0].data: found None, wanted a list of BYTES"),
        ({"data": ["*"], "parameters": {"content_type": "base64"}}, "data[0]: wanted base64"),
        ({"name": "pixels"}, "inputs[0].name: found 'pixels', wanted 'image'"),
        ({"datatype": "FP32"}, "inputs[0].datatype: found 'FP32', wanted 'BYTES'"),
        ({"datatype": []}, "inputs[0].datatype: found []"),
        ({"shape": [1]}, "inputs[0].shape: found [1], wanted [-1, 1]"),
        ({"shape": [-1, 1]}, "inputs[0].shape[0]: found -1, wanted a whole number from 0"),
        ({"shape": [True, 1]}, "inputs[0].shape[0]: found True"),
        ({"shape": [65, 1], "data": ["a"] * 65}, "inputs: found 65 items, wanted 1 to 64"),
        ({"shape": [0, 1], "data": []}, "inputs: found 0 items, wanted 1 to 64"),
        ({"parameters": []}, "inputs[0], parameters: wanted an object"),
        ({"parameters": {"binary_data_size": 5}}, "binary_data_size: found 5, wanted a whole number up to 0"),
    ],
)
def test_a_wrong_input_is_named(digits: Function, changed: Any, message: str) -> None:
    """Where, what was found, what was wanted: as an error of the protocol, and as a 400 over HTTP."""
    request = {"inputs": [TENSOR | changed]}
    outcome = digits.invoke(request)
    assert not outcome.failed
    assert message in outcome.body["error"]
    answer = digits.invoke(http_event(INFER, json.dumps(request).encode())).body
    assert answer["statusCode"] == 400
    assert body(answer) == outcome.body


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ([], "the event: wanted a request"),
        ("text", "the event: wanted a request"),
        ({"version": "2.0"}, "the event: wanted a request"),
        ({"httpMethod": "POST", "path": INFER}, "payload format 1.0 of API Gateway; wanted 2.0"),
        ({"inputs": []}, "inputs: wanted a list of 1 to 256 objects"),
        ({"inputs": ["image"]}, "inputs[0]: wanted an object"),
        ({"inputs": [TENSOR, TENSOR]}, "inputs[1].name: 'image' is there twice"),
        ({"inputs": [TENSOR], "id": 7}, "id: wanted a text"),
        ({"inputs": [TENSOR], "outputs": [{"name": "x"}]}, "outputs[0].name: found 'x', wanted one of label, score"),
        ({"inputs": [TENSOR], "parameters": {"binary_data_output": True}}, "binary_data: bytes after the JSON"),
    ],
)
def test_a_wrong_event_is_named(digits: Function, event: Any, message: str) -> None:
    """Whatever is handed in."""
    outcome = digits.invoke(event)
    assert not outcome.failed
    assert message in outcome.body["error"]


@pytest.mark.parametrize(
    ("event", "status", "message"),
    [
        (http_event(INFER, b"{"), 400, "the body: not JSON"),
        (http_event(INFER, b"[" * 100_000), 400, "the body: "),
        (http_event(INFER, b'{"inputs": NaN}'), 400, "NaN is no JSON"),
        (http_event(INFER, b"\xff"), 400, "the body: not JSON"),
        (http_event(INFER, b"[]"), 400, "the request: wanted an object"),
        (http_event(INFER, b"{}", headers={BINARY: "9"}), 400, "found '9', wanted 0 to 2"),
        (http_event(INFER, b"{}", headers={BINARY: "0" * 5000}), 400, "wanted 0 to 2"),
        (http_event(INFER, b"{}", headers={"content-encoding": "gzip"}), 415, "content-encoding"),
        (http_event(INFER, method="GET"), 405, "method GET: wanted POST"),
        (http_event("/v2/models/digits"), 405, "method POST: wanted GET"),
        (http_event("/v2/models/cats/infer"), 404, "model 'cats': wanted 'digits', version 1"),
        (http_event("/v2/models/digits/versions/2/infer"), 404, "version 2"),
        (http_event("/"), 404, "/: there is no such path"),
        (http_event(INFER) | {"body": "%%%"}, 400, "it is not base64"),
        (http_event(INFER) | {"body": True}, 400, "the body: wanted a text"),
    ],
)
def test_wrong_http_has_its_status(digits: Function, event: Any, status: int, message: str) -> None:
    """One status and one message for each, as JSON."""
    outcome = digits.invoke(event)
    assert not outcome.failed
    assert outcome.body["statusCode"] == status
    assert message in body(outcome.body)["error"]


FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "inputs",
    "outputs",
    "parameters",
    "id",
    "name",
    "shape",
    "datatype",
    "data",
    "requestContext",
    "http",
    "headers",
    "body",
    "isBase64Encoded",
    "rawPath",
    "method",
    "stage",
)


def spoilt(value: Any, field: str, other: Any) -> Any:
    """The same with another value wherever this field stands."""
    if isinstance(value, list):
        return [spoilt(item, field, other) for item in value]
    if not isinstance(value, dict):
        return value
    return {k: other if k == field else spoilt(v, field, other) for k, v in value.items()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(field=st.sampled_from(FIELDS), other=JSON, over_http=st.booleans())
def test_no_event_is_a_fault_of_the_function(
    digits: Function, example: Any, field: str, other: Any, over_http: bool
) -> None:
    """One field of a good event is something else: an answer or a refusal, and no failure."""
    request = example | {"id": "", "outputs": [{"name": "score", "parameters": {}}]}
    text = json.dumps(spoilt(request, field, other)).encode()
    event = spoilt(http_event(INFER, text), field, other) if over_http else spoilt(request, field, other)
    outcome = digits.invoke(event)
    assert not outcome.failed, outcome.body
    if "statusCode" in outcome.body:
        assert 200 <= outcome.body["statusCode"] < 500, outcome.body


def test_bytes_that_nobody_names_are_refused(digits: Function, example: Any) -> None:
    """Bytes after the JSON must belong to an input."""
    text = json.dumps(example).encode()
    event = http_event(INFER, text + b"more", headers={BINARY: str(len(text))})
    answer = digits.invoke(event).body
    assert "4 bytes stand behind the inputs" in body(answer)["error"]


def test_the_log_says_what_the_start_took(digits_folder: Path) -> None:
    """One line of JSON; threads by the function's memory."""
    from bench.runtime_api import function

    with function(digits_folder / "function", memory_mib=128) as running:
        facts = json.loads(running.stop().splitlines()[0])
    assert facts["function"] == "digits"
    assert facts["threads"] == 1
    assert set(facts["ms"]) >= {"libraries", "files", "models"}
