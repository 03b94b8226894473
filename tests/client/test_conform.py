"""The fit of values to tensors, and the text of refusals."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonkit.client.conform import conform, fits
from tritonkit.client.wire.signature import TensorSpec
from tritonkit.client.wire.tensors import FIXED, from_raw, to_raw
from tritonkit.errors import InvalidInput

HERE = "model m, input x"


def spec(datatype: str = "FP32", dims: tuple[int, ...] = (2,), batched: bool = True) -> TensorSpec:
    """A tensor to fit."""
    return TensorSpec("x", datatype, dims, batched=batched)


@given(
    data=st.data(),
    datatype=st.sampled_from(sorted(FIXED)),
    dims=npst.array_shapes(min_dims=1, max_dims=3, max_side=4),
    batch=st.integers(1, 4),
)
def test_an_item_and_a_batch_are_told_apart_by_their_axes(
    data: st.DataObject, datatype: str, dims: tuple[int, ...], batch: int
) -> None:
    """For any shape: the declared rank is one item, one axis more is a batch, and nothing changes."""
    array = data.draw(npst.arrays(FIXED[datatype], (batch, *dims)))
    declared = spec(datatype, dims)
    assert conform(array, declared, HERE).tobytes() == array.tobytes()
    item = conform(array[0], declared, HERE)
    assert item.shape == (1, *dims)
    assert item.tobytes() == array[0].tobytes()


@given(values=st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=4))
@pytest.mark.parametrize("datatype", ["INT8", "UINT8", "INT32", "UINT64", "INT64", "FP16", "FP32"])
def test_whole_numbers_arrive_exactly_or_are_refused(datatype: str, values: list[int]) -> None:
    """Python integers never change on the way: they are exact, or an error."""
    try:
        array = conform(values, spec(datatype, (-1,)), HERE)
    except InvalidInput:
        return
    assert [int(value) for value in array[0]] == values


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("UINT8", [0, 255]),
        ("INT8", [-128, 127]),
        ("UINT64", [0, 2**64 - 1]),
        ("FP16", [2048, -2048]),
        ("BF16", [256, -256]),
        ("FP32", [2**24, -(2**24)]),
        ("FP64", [2**53]),
        ("FP32", [0.1, -1e30, float("inf"), float("nan")]),
        ("FP16", [0.1]),
        ("BOOL", [True, False]),
        ("INT32", [True, False]),
        ("FP32", []),
    ],
)
def test_python_values_that_fit(datatype: str, values: list[Any]) -> None:
    """Values at the edge of what a type holds are taken."""
    array = conform(values, spec(datatype, (-1,)), HERE)
    assert array.shape == (1, len(values))
    expected = np.array(values, FIXED.get(datatype, FIXED["FP32"]))
    np.testing.assert_array_equal(array[0], expected)


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("UINT8", [256]),
        ("UINT8", [-1]),
        ("UINT64", [-1]),
        ("INT64", [2**63]),
        ("INT64", [2**70]),
        ("INT64", [1.0]),
        ("FP16", [2049]),
        ("FP16", [1e6]),
        ("BF16", [257]),
        ("FP32", [2**24 + 1]),
        ("FP32", [1e39]),
        ("BOOL", [1]),
        ("FP32", ["1.0"]),
        ("FP32", [None]),
        ("FP32", [[1.0], [1.0, 2.0]]),
        ("FP32", [1j]),
    ],
)
def test_python_values_that_do_not(datatype: str, values: list[Any]) -> None:
    """Values that would change are refused, naming the model and the input."""
    with pytest.raises(InvalidInput, match=HERE):
        conform(values, spec(datatype, (-1,)), HERE)


@pytest.mark.parametrize(
    ("given_type", "datatype"),
    [
        ("int32", "INT64"),
        ("uint8", "FP32"),
        ("float32", "FP64"),
        ("float16", "FP32"),
        ("bool", "INT8"),
        (">f4", "FP32"),
        (">i8", "INT64"),
        ("float32", "BF16"),
        ("float16", "BF16"),
    ],
)
def test_arrays_that_are_cast(given_type: str, datatype: str) -> None:
    """A cast that loses nothing by type is made, byte order included."""
    array = np.array([0, 1]).astype(given_type)
    result = conform(array, spec(datatype), HERE)
    back = from_raw(to_raw(result, datatype), datatype, (1, 2))
    np.testing.assert_array_equal(back, [[0, 1]])


@pytest.mark.parametrize(
    ("given_type", "datatype"),
    [
        ("float64", "FP32"),
        ("int64", "INT32"),
        ("int64", "FP32"),
        ("int8", "UINT8"),
        ("uint8", "BOOL"),
        ("complex64", "FP32"),
        ("float64", "BF16"),
        ("U3", "FP32"),
        ("O", "FP32"),
    ],
)
def test_arrays_that_are_not(given_type: str, datatype: str) -> None:
    """A cast that could lose something is the caller's to make."""
    with pytest.raises(InvalidInput, match="an array of"):
        conform(np.array([0, 1]).astype(given_type), spec(datatype), HERE)


def test_bfloat16_arrays_keep_their_bits() -> None:
    """Arrays of ml_dtypes' bfloat16 are BF16 already."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -3.0], ml_dtypes.bfloat16)
    result = conform(array, spec("BF16"), HERE)
    assert to_raw(result, "BF16") == array.tobytes()


def test_arrays_in_any_memory_order_are_sent_row_by_row() -> None:
    """Transposed and strided arrays arrive as what they look like."""
    array = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2].T
    result = conform(array, spec(dims=(2,)), HERE)
    back = from_raw(to_raw(result, "FP32"), "FP32", result.shape)
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"a", [[b"a"]]),
        ("ä", [["ä".encode()]]),
        (bytearray(b"ab"), [[b"ab"]]),
        (memoryview(b"ab"), [[b"ab"]]),
        ([b"a\0", "b"], [[b"a\0"], [b"b"]]),
        ([bytearray(b"ab")], [[b"ab"]]),
        ([["a"], ["b"]], [[b"a"], [b"b"]]),
        (np.array([["a"], ["b"]]), [[b"a"], [b"b"]]),
        (np.array([b"a"]), [[b"a"]]),
        (np.array(["a", "b"], dtype=object), [[b"a"], [b"b"]]),
        ("", [[b""]]),
    ],
)
def test_texts_and_files(value: Any, expected: list[list[bytes]]) -> None:
    """A text or a file's bytes is one item, a list of them is a batch, in every spelling."""
    assert conform(value, spec("BYTES", (1,)), HERE).tolist() == expected


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "empty batch"),
        ([1], "int"),
        ([None], "NoneType"),
        ([[b"a"], [b"b", b"c"]], "list"),
        ("\ud800", "lone surrogate"),
        (np.zeros(3, np.uint8), "tobytes"),
        ([["a", "b"]], "axis 0 of an item is 2"),
    ],
)
def test_texts_that_are_not(value: Any, says: str) -> None:
    """A value that is not text is named, with the way out if there is one."""
    with pytest.raises(InvalidInput) as caught:
        conform(value, spec("BYTES", (1,)), HERE)
    assert says in str(caught.value)


@pytest.mark.parametrize("batch", [1, 3])
def test_single_values_need_no_axis_of_their_own(batch: int) -> None:
    """If an item is declared as [1], N values in a row are N items, and one is one."""
    flat = np.arange(batch, dtype=np.float32)
    full = flat.reshape(batch, 1)
    assert conform(flat, spec(dims=(1,)), HERE).tolist() == full.tolist()
    assert conform(full, spec(dims=(1,)), HERE).tolist() == full.tolist()
    assert conform(7, spec(dims=(1,)), HERE).tolist() == [[7]]


def test_a_bare_value_is_a_row_of_one() -> None:
    """If any length is allowed, a text without a list stands for a list of one."""
    assert conform("a", spec("BYTES", (-1,)), HERE).tolist() == [[b"a"]]
    assert conform("a", spec("BYTES", (-1,), batched=False), HERE).tolist() == [b"a"]


def test_without_a_batch_axis_arrays_go_as_they_are() -> None:
    """A model that does not batch never gets an axis added."""
    array = np.zeros((3, 2), np.float32)
    assert conform(array, spec(dims=(-1, 2), batched=False), HERE).shape == (3, 2)
    with pytest.raises(InvalidInput, match="1 axes"):
        conform(array[0], spec(dims=(-1, 2), batched=False), HERE)


@pytest.mark.parametrize("shape", [(), (2, 8, 8, 1), (1, 1, 1, 8, 8), (0, 1, 8, 8)])
def test_wrong_axes_are_refused(shape: tuple[int, ...]) -> None:
    """Too few axes, too many, or none in the batch; the message shows both shapes that fit."""
    with pytest.raises(InvalidInput) as caught:
        conform(np.zeros(shape, np.float32), spec(dims=(1, 8, 8)), HERE)
    assert "[1, 8, 8]" in str(caught.value)
    assert "[batch, 1, 8, 8]" in str(caught.value)


def test_the_offending_axis_is_named() -> None:
    """A shape that differs in one place says in which."""
    with pytest.raises(InvalidInput) as caught:
        conform(np.zeros((2, 1, 8, 9), np.float32), spec(dims=(1, 8, 8)), HERE)
    assert caught.value.found == "axis 2 of an item is 9, sent shape [2, 1, 8, 9]"


@given(
    data=st.data(),
    dims=st.lists(st.sampled_from([-1, 1, 2]), min_size=1, max_size=3).map(tuple),
    shape=npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
)
def test_the_short_way_agrees_with_the_long_one(
    data: st.DataObject, dims: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    """Values that `fits` lets through unchanged stay unchanged in `conform`."""
    array = data.draw(npst.arrays(np.float32, shape, elements=st.just(0.0)))
    if fits(array, spec(dims=dims)):
        assert conform(array, spec(dims=dims), HERE) is array
