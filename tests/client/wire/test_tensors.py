"""Arrays to bytes and back."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from tritonkit.client.wire.tensors import FIXED, from_raw, to_raw, wire_array

SHAPES = npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


@settings(deadline=None)
@given(data=st.data(), datatype=st.sampled_from(sorted(FIXED)), shape=SHAPES)
def test_fixed_types_come_back_bit_for_bit(data: st.DataObject, datatype: str, shape: tuple[int, ...]) -> None:
    """Every type numpy has survives the wire with every bit, NaNs included."""
    array = data.draw(npst.arrays(FIXED[datatype], shape))
    back = from_raw(to_raw(array, datatype), datatype, shape)
    assert back.shape == shape
    assert back.dtype == FIXED[datatype]
    assert back.tobytes() == array.tobytes()


@settings(deadline=None)
@given(cells=st.lists(st.binary(max_size=40), max_size=12))
def test_bytes_come_back(cells: list[bytes]) -> None:
    """Elements of any length survive, empty and zero-ended ones too."""
    array = np.array([*cells, None], dtype=object)[:-1]
    back = from_raw(to_raw(array, "BYTES"), "BYTES", (len(cells),))
    assert back.tolist() == cells


@settings(deadline=None)
@given(cells=st.lists(st.binary(max_size=40), min_size=1, max_size=12))
def test_bytes_are_laid_out_as_tritonclient_does(cells: list[bytes]) -> None:
    """Ours reads what tritonclient writes, and the other way round."""
    array = np.array([*cells, None], dtype=object)[:-1]
    theirs = serialize_byte_tensor(array).item()
    assert to_raw(array, "BYTES") == theirs
    assert deserialize_bytes_tensor(theirs).tolist() == from_raw(theirs, "BYTES", [-1]).tolist()


@settings(deadline=None)
@given(values=npst.arrays(np.float32, npst.array_shapes(max_side=5)))
def test_bf16_rounds_to_nearest_even(values: Any) -> None:
    """BF16 agrees with ml_dtypes, the reference implementation, on every float32."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with np.errstate(all="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    back = from_raw(to_raw(values, "BF16"), "BF16", values.shape)
    np.testing.assert_array_equal(back, expected)


@pytest.mark.parametrize("raw", [b"\x01", b"\x05\x00\x00\x00abc", b"\x00\x00\x00\x00\x01\x00"])
def test_cut_bytes_are_refused(raw: bytes) -> None:
    """A BYTES tensor that ends inside an element is an error, not a shorter answer."""
    with pytest.raises(ValueError, match="past the end"):
        from_raw(raw, "BYTES", (1,))


@pytest.mark.parametrize(
    ("raw", "datatype", "shape"), [(b"\x00" * 7, "FP32", (2,)), (b"\x00" * 12, "FP32", (2,)), (b"", "FP128", (0,))]
)
def test_bytes_that_do_not_fill_the_shape_are_refused(raw: bytes, datatype: str, shape: tuple[int, ...]) -> None:
    """Too few bytes, too many, or an unknown type: never a guess."""
    with pytest.raises(ValueError, match=r"size|shape|unknown"):
        from_raw(raw, datatype, shape)


def test_outputs_share_the_bytes_they_came_in() -> None:
    """Decoding numbers copies nothing."""
    raw = bytes(range(16))
    array = from_raw(raw, "UINT8", (4, 4))
    assert np.shares_memory(array, np.frombuffer(raw, np.uint8))
    assert not array.flags.writeable


@settings(deadline=None)
@given(data=st.data(), datatype=st.sampled_from(sorted(FIXED)))
def test_arrays_that_lie_as_the_wire_wants_are_not_copied(data: st.DataObject, datatype: str) -> None:
    """Any shape, also without axes or elements: the memory sent is the caller's own."""
    shape = data.draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    array = data.draw(npst.arrays(FIXED[datatype], shape))
    assert wire_array(array, datatype) is array
    assert b"".join([wire_array(array, datatype)]) == to_raw(array, datatype)


@pytest.mark.parametrize("datatype", sorted(FIXED))
@pytest.mark.parametrize(
    "change",
    [
        lambda array: array.astype(array.dtype.newbyteorder(">")),
        lambda array: np.asfortranarray(array),
        lambda array: array[::-1, ::2],
        lambda array: np.broadcast_to(array[:1, :1], (3, 4)),
        lambda array: array.T[..., None],
        lambda array: array[0, 0, None].astype(array.dtype.newbyteorder(">")).reshape(()),
    ],
)
def test_other_arrays_are_laid_out_anew(datatype: str, change: Any) -> None:
    """Big-endian, by columns, reversed, repeated, transposed, a single number: row-major and little-endian."""
    array = change(np.arange(12).reshape(3, 4).astype(FIXED[datatype]))
    laid = wire_array(array, datatype)
    assert laid.flags.c_contiguous
    assert (laid.dtype, laid.shape) == (FIXED[datatype], array.shape)
    back = from_raw(to_raw(array, datatype), datatype, array.shape)
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("array", "datatype"),
    [
        (np.zeros(2), "FP32"),
        (np.zeros(2, np.int32), "UINT32"),
        (np.zeros(2, np.int32), "BF16"),
        (np.zeros(2, np.uint8), "BYTES"),
        (np.zeros(2), "FP128"),
        (np.array([1, None]), "INT64"),
    ],
)
def test_arrays_of_another_type_are_refused(array: Any, datatype: str) -> None:
    """Bytes that mean something else to the server are not written."""
    with pytest.raises(ValueError, match=f"no {datatype} tensor"):
        to_raw(array, datatype)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 2)])
@pytest.mark.parametrize("order", ["<", ">"])
def test_bf16_keeps_its_shape(shape: tuple[int, ...], order: str) -> None:
    """Also of no axes, no elements, and the other byte order."""
    array = np.full(shape, 1.5, f"{order}f4")
    assert wire_array(array, "BF16").shape == shape
    back = from_raw(to_raw(array, "BF16"), "BF16", shape)
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("datatype", ["BYTES", "BF16", "FP16"])
def test_what_was_read_is_read_only(datatype: str) -> None:
    """Every output acts in the same way, whether or not it is a view of the answer."""
    array = from_raw(bytes(8), datatype, [-1])
    with pytest.raises(ValueError, match="read-only"):
        array[0] = array[0]
