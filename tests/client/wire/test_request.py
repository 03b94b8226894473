"""Requests in bytes, read by protobuf's own reader."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tritonkit.client.wire.request import Prepared, Region
from tritonkit.client.wire.signature import ModelSignature, TensorSpec
from tritonkit.client.wire.tensors import FIXED, from_raw, to_raw
from tritonkit.datatypes import DATATYPES
from tritonkit.errors import InvalidInput

SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
NAMES = st.text(max_size=20)
LARGE = 20_000


def prepared(*datatypes: str, version: str = "", outputs: tuple[str, ...] | None = None) -> Prepared:
    """Requests for a model with inputs a, b, ... of these types, and outputs y and z."""
    inputs = {name: TensorSpec(name, datatype, (-1,)) for name, datatype in zip("abcdef", datatypes, strict=False)}
    results = {name: TensorSpec(name, "FP32", (-1,)) for name in "yz"}
    return Prepared(ModelSignature("m", ("1",), 0, inputs, results), version, outputs)


def read(pieces: list[bytes | memoryview]) -> Any:
    """The message, as the server reads it."""
    return service_pb2.ModelInferRequest.FromString(b"".join(pieces))


def parameters(message: Any) -> dict[str, Any]:
    """Parameters by name: which field is set, and its value."""
    chosen = {key: value.WhichOneof("parameter_choice") for key, value in message.items()}
    return {key: (field, getattr(message[key], field)) for key, field in chosen.items()}


def arrays_of(datatype: str) -> st.SearchStrategy[Any]:
    """Arrays that fit a datatype, as the checks leave them."""
    if datatype == "BYTES":
        filled = st.binary(max_size=9)
        return npst.arrays(np.object_, SHAPES, elements=filled, fill=filled)
    return npst.arrays(FIXED.get(datatype, np.dtype("f4")), SHAPES)


@settings(deadline=None)
@given(data=st.data(), datatypes=st.lists(st.sampled_from(list(DATATYPES)), max_size=4))
def test_the_server_reads_what_was_given(data: st.DataObject, datatypes: list[str]) -> None:
    """Names, types, shapes and bytes of any number of inputs of any types arrive, in order."""
    arrays = {name: data.draw(arrays_of(datatype)) for name, datatype in zip("abcdef", datatypes, strict=False)}
    request = read(prepared(*datatypes).encode(arrays))
    assert (request.model_name, request.model_version, request.id) == ("m", "", "")
    assert not request.outputs
    assert not request.parameters
    assert [(tensor.name, tensor.datatype) for tensor in request.inputs] == list(zip(arrays, datatypes, strict=True))
    assert [tuple(tensor.shape) for tensor in request.inputs] == [a.shape for a in arrays.values()]
    assert list(request.raw_input_contents) == [
        to_raw(array, datatype) for array, datatype in zip(arrays.values(), datatypes, strict=True)
    ]


@settings(deadline=None)
@given(
    version=NAMES,
    request_id=NAMES,
    timeout_s=st.none() | st.floats(1e-9, 3e6),
    priority=st.integers(0, 2**64 - 1),
    given_parameters=st.dictionaries(
        st.text(max_size=8).filter(lambda name: name not in ("timeout", "priority")),
        st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=300),
        max_size=4,
    ),
)
def test_everything_said_of_a_call_arrives(
    version: str, request_id: str, timeout_s: float | None, priority: int, given_parameters: dict[str, Any]
) -> None:
    """Version, id, timeout in microseconds, priority and any parameters, each in its own field."""
    request = read(
        prepared(version=version).encode(
            {}, timeout_s=timeout_s, priority=priority, request_id=request_id, parameters=given_parameters
        )
    )
    assert (request.model_version, request.id) == (version, request_id)
    fields = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    expected = {key: (fields[type(value)], value) for key, value in given_parameters.items()}
    if timeout_s is not None:
        expected["timeout"] = ("int64_param", max(1, int(timeout_s * 1e6)))
    if priority:
        expected["priority"] = ("uint64_param", priority)
    assert parameters(request.parameters) == expected


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 1e-9])
def test_a_timeout_is_at_least_a_microsecond(timeout_s: float) -> None:
    """To Triton 0 means no timeout: a call whose time has just run out must not get all of it."""
    request = read(prepared().encode({}, timeout_s=timeout_s))
    assert request.parameters["timeout"].int64_param == 1


def test_outputs_asked_for_are_named() -> None:
    """The chosen outputs are named, and none if all are wanted."""
    request = read(prepared(outputs=("z",)).encode({}))
    assert [output.name for output in request.outputs] == ["z"]
    assert not read(prepared(outputs=None).encode({})).outputs


def test_inputs_in_shared_memory_send_no_bytes() -> None:
    """Their shape and place are told; the bytes of the others stay in the order of the inputs."""
    arrays = {name: np.arange(3, dtype=np.uint8) + at for at, name in enumerate("abc")}
    request = read(prepared("UINT8", "UINT8", "UINT8").encode(arrays, regions={"b": Region("r", 3, 64)}))
    described = {tensor.name: tensor for tensor in request.inputs}
    assert parameters(described["b"].parameters) == {
        "shared_memory_region": ("string_param", "r"),
        "shared_memory_byte_size": ("int64_param", 3),
        "shared_memory_offset": ("int64_param", 64),
    }
    assert list(described["b"].shape) == [3]
    with_bytes = [tensor.name for tensor in request.inputs if not tensor.parameters]
    assert with_bytes == ["a", "c"]
    assert list(request.raw_input_contents) == [arrays["a"].tobytes(), arrays["c"].tobytes()]


@pytest.mark.parametrize("outputs", [None, ("y", "z")])
def test_outputs_wanted_in_shared_memory_are_told_where(outputs: tuple[str, ...] | None) -> None:
    """All outputs are then requested by name: naming one would leave out the others."""
    request = read(prepared(outputs=outputs).encode({}, output_regions={"z": Region("r", 40)}))
    assert [output.name for output in request.outputs] == ["y", "z"]
    assert not request.outputs[0].parameters
    assert parameters(request.outputs[1].parameters) == {
        "shared_memory_region": ("string_param", "r"),
        "shared_memory_byte_size": ("int64_param", 40),
    }


@pytest.mark.parametrize("size", [1, LARGE])
@pytest.mark.parametrize(
    "change",
    [
        lambda array: array.astype(">f4"),
        lambda array: np.asfortranarray(array),
        lambda array: array[:, ::-2],
        lambda array: np.broadcast_to(array[:1], array.shape),
        lambda array: array.astype("f4").view(np.memmap),
    ],
)
def test_arrays_lie_in_memory_as_they_like(change: Any, size: int) -> None:
    """Big-endian, by columns, with strides, repeated: the same numbers arrive, also from large ones."""
    array = change(np.random.default_rng(0).random((5, 4 * size), np.float32))
    request = read(prepared("FP32").encode({"a": array}))
    back = from_raw(request.raw_input_contents[0], "FP32", tuple(request.inputs[0].shape))
    np.testing.assert_array_equal(back, array)


def test_large_tensors_are_not_copied() -> None:
    """A large array travels as a view of itself, small ones around it in one piece."""
    large = np.zeros((2, LARGE), np.float32)
    small = np.ones(3, np.float32)
    pieces = prepared("FP32", "FP32", "FP32").encode({"a": small, "b": large, "c": small})
    assert [type(piece) for piece in pieces] == [bytes, memoryview, bytes]
    assert np.shares_memory(np.frombuffer(pieces[1], np.uint8), large)
    assert [tensor.name for tensor in read(pieces).inputs] == ["a", "b", "c"]


def test_a_request_of_small_tensors_is_one_piece() -> None:
    """Nothing is gained by many small writes."""
    assert len(prepared("FP32").encode({"a": np.zeros((1, 64), np.float32)}, timeout_s=1)) == 1


def test_text_of_one_shape_and_many_lengths() -> None:
    """Parts kept by shape hold nothing of the length of texts."""
    maker = prepared("BYTES", "BF16")
    for words in (["a", "bc"], ["", "longer"]):
        array = np.array([word.encode() for word in words], dtype=object)
        request = read(maker.encode({"a": array, "b": np.zeros(2, np.float32)}))
        assert list(request.raw_input_contents) == [to_raw(array, "BYTES"), bytes(4)]


def test_many_shapes_are_not_kept_forever() -> None:
    """A model called with ever new shapes does not fill the memory."""
    maker = prepared("UINT8")
    for size in range(2000):
        assert read(maker.encode({"a": np.zeros(size, np.uint8)})).inputs[0].shape == [size]
    assert len(maker._inputs["a"].heads) < 500


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"parameters": {"sequence_id": 2**63}}, "sequence_id"),
        ({"parameters": {"x": b"bytes"}}, "a bytes"),
        ({"parameters": {"x": None}}, "a NoneType"),
        ({"priority": -1}, "priority -1"),
        ({"priority": 2**64}, "priority"),
        ({"request_id": "\ud800"}, "surrogates"),
        ({"timeout_s": float("inf")}, "infinity"),
    ],
)
def test_what_no_field_can_hold_is_refused(options: dict[str, Any], says: str) -> None:
    """Numbers past 64 bits, unknown types and broken text name the model and the value."""
    with pytest.raises(InvalidInput, match="model m") as caught:
        prepared().encode({}, **options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("datatype", "array"),
    [
        ("FP32", np.zeros(3)),
        ("INT32", np.zeros(3, np.uint32)),
        ("BYTES", np.zeros(3)),
        ("BF16", np.zeros(3, np.int16)),
        ("FP32", np.array([b"x"], dtype=object)),
    ],
)
def test_an_array_of_another_type_never_travels(datatype: str, array: Any) -> None:
    """Bytes that would be read as something else are refused, should a check have been left out."""
    with pytest.raises(InvalidInput, match=f"no {datatype} tensor"):
        prepared(datatype).encode({"a": array})
