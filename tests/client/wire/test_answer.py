"""Answers in bytes, written by protobuf's own writer, or broken."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tests.client.wire.fields import number, sized
from tritonkit.client.wire.answer import Answer, _forms, decode, stream_response
from tritonkit.client.wire.tensors import FIXED, to_raw
from tritonkit.datatypes import DATATYPES
from tritonkit.errors import InferenceError

SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
CELLS = st.binary(max_size=9)
Y = np.arange(10, dtype=np.float32).reshape(1, 10)


def arrays_of(datatype: str) -> st.SearchStrategy[Any]:
    """Arrays that fit a datatype; those of BF16 hold what BF16 can."""
    if datatype == "BYTES":
        return npst.arrays(np.object_, SHAPES, elements=CELLS, fill=CELLS)
    if datatype == "BF16":
        return npst.arrays(np.int8, SHAPES).map(lambda array: array.astype(np.float32))
    return npst.arrays(FIXED[datatype], SHAPES)


@st.composite
def outputs(draw: st.DrawFn) -> dict[str, tuple[str, Any]]:
    """Datatype and array of a few outputs by name."""
    names = draw(st.lists(st.text(max_size=6), unique=True, max_size=4))
    datatypes = [draw(st.sampled_from(list(DATATYPES))) for _ in names]
    return {name: (datatype, draw(arrays_of(datatype))) for name, datatype in zip(names, datatypes, strict=True)}


def message(tensors: dict[str, tuple[str, Any]], **fields: Any) -> Any:
    """A `ModelInferResponse` as Triton makes it."""
    response = service_pb2.ModelInferResponse(**fields)
    for name, (datatype, array) in tensors.items():
        response.outputs.add(name=name, datatype=datatype, shape=array.shape)
        response.raw_output_contents.append(to_raw(array, datatype))
    return response


def written(tensors: dict[str, tuple[str, Any]], **fields: Any) -> bytes:
    """Its bytes."""
    body: bytes = message(tensors, **fields).SerializeToString()
    return body


EMPTY = {"FP32": np.zeros((2, 0), np.float32), "BYTES": np.zeros((2, 0), object)}
ANSWER = written({"y": ("FP32", Y)}, model_name="m", model_version="2")


@settings(deadline=None)
@given(tensors=outputs(), model=st.text(), version=st.text(max_size=3), call=st.text(max_size=200))
def test_everything_a_server_says_is_read(
    tensors: dict[str, tuple[str, Any]], model: str, version: str, call: str
) -> None:
    """Names, id, types, shapes and every bit of the outputs, in the server's order."""
    body = written(tensors, model_name=model, model_version=version, id=call)
    for given_body in (body, memoryview(b"12345" + body)[5:], memoryview(bytearray(body))):
        answer = decode(given_body)
        assert (answer.model, answer.version, answer.id) == (model, version, call)
        assert list(answer.outputs) == list(tensors)
        assert not answer.in_region
        for name, (datatype, array) in tensors.items():
            back = answer.outputs[name]
            assert back.shape == array.shape
            assert to_raw(back, datatype) == to_raw(array, datatype)
            assert not back.flags.writeable


@settings(deadline=None)
@given(outputs(), outputs(), st.booleans())
def test_an_answer_is_read_the_same_after_others_of_its_length(
    tensors: dict[str, tuple[str, Any]], others: dict[str, tuple[str, Any]], same_names: bool
) -> None:
    """The kept form of an earlier answer serves only one that differs in its values."""
    if same_names:  # other values of the same outputs
        others = {name: (kind, array.copy()[::-1]) for name, (kind, array) in tensors.items() if array.ndim}
    for values in (tensors, others, tensors, others):
        body = written(values, model_name="m", model_version="1")
        answer = decode(body)
        assert list(answer.outputs) == list(values)
        for name, (_, array) in values.items():
            np.testing.assert_array_equal(answer.outputs[name], array)
            assert not answer.outputs[name].flags.writeable


def test_a_byte_other_than_a_value_makes_another_answer() -> None:
    """Each byte of an answer in turn is changed: what is read is what a fresh reader reads."""
    body = written({"y": ("FP32", Y), "z": ("INT8", np.arange(3, dtype=np.int8))}, model_name="m")
    for at in range(len(body)):
        for flipped in (1, 0x08, 0x80):
            other = bytearray(body)
            other[at] ^= flipped
            decode(body)
            assert _read(bytes(other)) == _read_afresh(bytes(other))


def _read(body: bytes) -> str:
    try:
        return repr(decode(body))
    except InferenceError as error:
        return str(error)


def _read_afresh(body: bytes) -> str:
    _forms.clear()
    return _read(body)


def test_parameters_are_read_by_their_type() -> None:
    """Every kind of parameter, the final mark of a stream among them."""
    response = message({})
    response.parameters["triton_final_response"].bool_param = True
    response.parameters["a"].int64_param = -3
    response.parameters["b"].uint64_param = 2**64 - 1
    response.parameters["c"].double_param = 0.5
    response.parameters["d"].string_param = "é"
    response.parameters["later"].SetInParent()
    assert decode(response.SerializeToString()).parameters == {
        "triton_final_response": True,
        "a": -3,
        "b": 2**64 - 1,
        "c": 0.5,
        "d": "é",
        "later": None,
    }


def test_fields_come_in_any_order_and_unknown_ones_are_skipped() -> None:
    """Another writer, or a later Triton, may send such fields."""
    raw = sized(6, Y.tobytes())
    tensor = sized(3, b"\x01") + sized(900, b"new") + sized(2, b"FP32") + sized(1, b"y")
    tensor += number(3, 10) + number(7, 1)
    body = number(55, 7) + raw + b"\x7d1234" + sized(5, tensor) + b"\x711234567" + b"8"
    answer = decode(body + sized(900, b"new") + sized(1, b"old") + sized(1, b"m"))
    assert answer.model == "m"
    np.testing.assert_array_equal(answer.outputs["y"], Y)


def test_large_answers_are_not_copied() -> None:
    """Arrays look at the bytes that came; a small answer's arrays lie as numpy likes best."""
    large = np.random.default_rng(0).random((300, 300), np.float32)
    body = memoryview(bytearray(written({"y": ("FP32", large), "z": ("FP32", Y)})))
    array = decode(body).outputs["y"]
    np.testing.assert_array_equal(array, large)
    assert np.shares_memory(array, np.frombuffer(body, np.uint8))
    assert not array.flags.writeable
    assert decode(ANSWER).outputs["y"].flags.aligned


@pytest.mark.parametrize(
    ("datatype", "field", "values"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-128, 127]),
        ("INT16", "int_contents", [-1, 300]),
        ("INT32", "int_contents", [-(2**31), 2**31 - 1]),
        ("INT64", "int64_contents", [-(2**63), 2**63 - 1]),
        ("UINT8", "uint_contents", [0, 255]),
        ("UINT16", "uint_contents", [0, 65535]),
        ("UINT32", "uint_contents", [0, 2**32 - 1]),
        ("UINT64", "uint64_contents", [0, 2**64 - 1]),
        ("FP32", "fp32_contents", [0.5, -1e30]),
        ("FP64", "fp64_contents", [0.5, -1e300]),
        ("BYTES", "bytes_contents", [b"", b"\x00x"]),
    ],
)
def test_typed_contents_are_read(datatype: str, field: str, values: list[Any]) -> None:
    """Servers other than Triton may answer with numbers instead of bytes."""
    response = service_pb2.ModelInferResponse()
    tensor = response.outputs.add(name="y", datatype=datatype, shape=[2, 1])
    getattr(tensor.contents, field).extend(values)
    array = decode(response.SerializeToString()).outputs["y"]
    assert array.ravel().tolist() == np.array(values, array.dtype).tolist()
    assert array.dtype == FIXED.get(datatype, np.dtype(object))
    assert array.shape == (2, 1)
    assert not array.flags.writeable


def test_typed_contents_that_are_not_packed_are_read() -> None:
    """Old writers send each number as a field of its own."""
    numbers = sized(5, number(2, 5) + number(2, -6))
    described = sized(1, b"y") + sized(2, b"INT32") + number(3, 2)
    assert decode(sized(5, described + numbers)).outputs["y"].tolist() == [5, -6]
    floats = sized(5, b"\x35" + np.float32(1.5).tobytes())
    described = sized(1, b"y") + sized(2, b"FP32") + number(3, 1)
    assert decode(sized(5, described + floats)).outputs["y"].tolist() == [1.5]


@pytest.mark.parametrize(
    ("datatype", "contents"),
    [
        ("INT8", {"int_contents": [300]}),
        ("UINT16", {"uint_contents": [65536]}),
        ("FP32", {"fp32_contents": [1.0, 2.0]}),
        ("FP32", {"fp64_contents": [1.0]}),
        ("FP16", {"fp32_contents": [1.0]}),
        ("BYTES", {}),
    ],
)
def test_typed_contents_that_do_not_fit_are_refused(datatype: str, contents: dict[str, Any]) -> None:
    """Numbers out of range, too many, too few, or in the wrong field."""
    response = service_pb2.ModelInferResponse()
    response.outputs.add(name="y", datatype=datatype, shape=[1], contents=contents)
    with pytest.raises(InferenceError, match="cannot be read"):
        decode(response.SerializeToString())


def test_raw_bytes_may_stand_for_some_outputs_only() -> None:
    """An output with typed contents among outputs with bytes takes none of theirs."""
    response = message({"y": ("FP32", Y)})
    tensor = response.outputs.add(name="n", datatype="INT32", shape=[1])
    tensor.contents.int_contents.append(4)
    answer = decode(response.SerializeToString())
    assert answer.outputs["n"].tolist() == [4]
    np.testing.assert_array_equal(answer.outputs["y"], Y)


def test_outputs_in_shared_memory_as_triton_answers() -> None:
    """Triton sends an empty tensor for each: the caller knows which it requested there."""
    response = message({"y": ("FP32", Y), "t": ("BYTES", np.array([b"x"], object))})
    response.raw_output_contents[0] = b""
    response.raw_output_contents[1] = b""
    response.MergeFrom(message({"z": ("FP32", Y)}))
    answer = decode(response.SerializeToString(), in_regions={"y", "t"})
    assert answer.in_region == {"y": ("FP32", (1, 10), 40), "t": ("BYTES", (1,), 0)}
    assert list(answer.outputs) == ["z"]


def test_outputs_in_shared_memory_as_the_protocol_allows() -> None:
    """An answer that says where it put an output needs no bytes for it."""
    response = message({"z": ("FP32", Y)})
    tensor = response.outputs.add(name="y", datatype="BYTES", shape=[3])
    tensor.parameters["shared_memory_region"].string_param = "r"
    tensor.parameters["shared_memory_byte_size"].int64_param = 64
    answer = decode(response.SerializeToString())
    assert answer.in_region == {"y": ("BYTES", (3,), 64)}
    assert list(answer.outputs) == ["z"]


def test_an_output_that_came_as_bytes_after_all_is_taken() -> None:
    """Asking for shared memory does not make the answer's bytes disappear."""
    answer = decode(ANSWER, in_regions={"y"})
    np.testing.assert_array_equal(answer.outputs["y"], Y)


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_an_empty_output_is_in_no_region(datatype: str) -> None:
    """Without elements there is nothing to look for in shared memory."""
    answer = decode(written({"y": (datatype, EMPTY[datatype])}), in_regions={"y"})
    assert answer.outputs["y"].shape == (2, 0)
    assert not answer.in_region


@pytest.mark.parametrize(
    "tensor",
    [
        {"shape": [1, 11]},
        {"shape": [1, 9]},
        {"shape": [-1, -10]},
        {"shape": [2**62, 2**62]},
        {"shape": [1] * 70 + [10]},
        {"datatype": "FP99"},
        {"datatype": "BYTES"},
        {"datatype": "BF16"},
        {"datatype": ""},
    ],
)
def test_an_answer_that_contradicts_itself_is_an_error(tensor: dict[str, Any]) -> None:
    """A shape its bytes do not fill, or a type nobody knows, is not passed on."""
    response = service_pb2.ModelInferResponse(raw_output_contents=[Y.tobytes()])
    response.outputs.add(**{"name": "y", "datatype": "FP32", "shape": [1, 10]} | tensor)
    with pytest.raises(InferenceError, match="cannot be read"):
        decode(response.SerializeToString())


@pytest.mark.parametrize("more", [{"outputs": 1}, {"raw_output_contents": 1}])
def test_every_output_has_its_bytes(more: dict[str, int]) -> None:
    """Neither an output without bytes nor bytes without an output are passed over."""
    response = message({"y": ("FP32", Y), "z": ("FP32", Y)})
    for field in more:
        getattr(response, field).pop()
    with pytest.raises(InferenceError, match="cannot be read"):
        decode(response.SerializeToString())


@pytest.mark.parametrize("how", ["contents", "region"])
def test_an_output_has_its_values_once(how: str) -> None:
    """Raw bytes in addition to typed contents or a region are one tensor too many."""
    response = service_pb2.ModelInferResponse()
    tensor = response.outputs.add(name="y", datatype="FP32", shape=[1])
    if how == "contents":
        tensor.contents.fp32_contents.append(1.0)
    else:
        tensor.parameters["shared_memory_region"].string_param = "r"
        tensor.parameters["shared_memory_byte_size"].int64_param = 4
    response.raw_output_contents.append(np.float32(2.0).tobytes())
    with pytest.raises(InferenceError) as caught:
        decode(response.SerializeToString())
    assert "in another way too" in caught.value.details


def test_a_huge_shape_without_elements_is_no_crash() -> None:
    """numpy refuses sizes whose product overflows even where an axis is 0."""
    response = service_pb2.ModelInferResponse(raw_output_contents=[b""])
    response.outputs.add(name="y", datatype="FP32", shape=[0, 2**62])
    with pytest.raises(InferenceError, match="cannot be read"):
        decode(response.SerializeToString())


@settings(deadline=None)
@given(tensors=outputs(), error=st.text(max_size=20))
def test_messages_of_a_stream_are_read(tensors: dict[str, tuple[str, Any]], error: str) -> None:
    """The error and the answer, either of which may be missing."""
    response = service_pb2.ModelStreamInferResponse(error_message=error, infer_response=message(tensors, id="7"))
    text, answer = stream_response(response.SerializeToString())
    assert text == error
    assert answer is not None
    assert answer.id == "7"
    assert list(answer.outputs) == list(tensors)
    alone = service_pb2.ModelStreamInferResponse(error_message=error)
    assert stream_response(alone.SerializeToString()) == (error, None)


def read(body: bytes) -> Answer | None:
    """The answer, None if it was refused as it should be; any other error fails the test."""
    with suppress(InferenceError):
        stream_response(body)
    with suppress(InferenceError):
        return decode(body)
    return None


@settings(deadline=None)
@given(body=st.binary(max_size=300))
@example(b"")
def test_random_bytes_are_answers_or_errors_of_ours(body: bytes) -> None:
    """No bytes from the network raise anything but an InferenceError."""
    read(body)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """An answer with some bytes changed, cut out or put in."""
    fields = {"model_name": "model", "model_version": "1", "id": "i"}
    response = message(draw(outputs()), **fields)
    response.parameters["p"].int64_param = 7
    typed = response.outputs.add(name="t", datatype="INT32", shape=[2])
    typed.contents.int_contents.extend([1, -2])
    body = bytearray(response.SerializeToString())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        until = draw(st.integers(at, min(at + 3, len(body))))
        body[at:until] = draw(st.binary(max_size=3))
    return bytes(body)


@settings(deadline=None)
@given(body=broken())
@example(b'\x80\x80\x80\x80\x80\n\x05model\x12\x011"\x07\n\x01p\x12\x02\x10\x07')
def test_broken_answers_are_answers_or_errors_of_ours(body: bytes) -> None:
    """A changed bit may change the answer; it never crashes, and both readers agree on what it says."""
    answer = read(body)
    if answer is None:
        return
    theirs = service_pb2.ModelInferResponse.FromString(body)
    assert (answer.model, answer.version, answer.id) == (theirs.model_name, theirs.model_version, theirs.id)
    shapes = {output.name: tuple(output.shape) for output in theirs.outputs}
    if len(shapes) == len(theirs.outputs):
        placed = {name: shape for name, (_, shape, _) in answer.in_region.items()}
        assert {name: array.shape for name, array in answer.outputs.items()} | placed == shapes
