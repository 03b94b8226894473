"""Arrays to bytes and back."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from tritonkit.client.tensors import DATATYPES, FIXED, from_raw, to_raw

SHAPES = npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


@given(data=st.data(), datatype=st.sampled_from(sorted(FIXED)), shape=SHAPES)
def test_fixed_types_come_back_bit_for_bit(
    data: st.DataObject, datatype: str, shape: tuple[int, ...]
) -> None:
    """Every type numpy has survives the wire with every bit, NaNs included."""
    array = data.draw(npst.arrays(FIXED[datatype], shape))
    back = from_raw(to_raw(array, datatype), datatype, shape)
    assert back.shape == shape
    assert back.dtype == FIXED[datatype]
    assert back.tobytes() == array.tobytes()


@given(cells=st.lists(st.binary(max_size=40), max_size=12))
def test_bytes_come_back(cells: list[bytes]) -> None:
    """Elements of any length survive, empty and zero-ended ones too."""
    array = np.array([*cells, None], dtype=object)[:-1]
    back = from_raw(to_raw(array, "BYTES"), "BYTES", (len(cells),))
    assert back.tolist() == cells


@given(cells=st.lists(st.binary(max_size=40), min_size=1, max_size=12))
def test_bytes_are_laid_out_as_tritonclient_does(cells: list[bytes]) -> None:
    """Ours reads what tritonclient writes, and the other way round."""
    array = np.array([*cells, None], dtype=object)[:-1]
    theirs = serialize_byte_tensor(array).item()
    assert to_raw(array, "BYTES") == theirs
    assert deserialize_bytes_tensor(theirs).tolist() == from_raw(theirs, "BYTES", [-1]).tolist()


@given(values=npst.arrays(np.float32, npst.array_shapes(max_side=5)))
def test_bf16_rounds_to_nearest_even(values: Any) -> None:
    """BF16 agrees with ml_dtypes, the reference implementation, on every float32."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with np.errstate(all="ignore"):
        wanted = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    back = from_raw(to_raw(values, "BF16"), "BF16", values.shape)
    np.testing.assert_array_equal(back, wanted)


def test_every_datatype_of_triton_is_known() -> None:
    """No type of Triton's configuration schema is missing here."""
    from tritonclient.grpc import model_config_pb2

    names = {name.removeprefix("TYPE_") for name in list(model_config_pb2.DataType.keys())}
    assert names - {"INVALID"} - {"STRING"} | {"BYTES"} == set(DATATYPES)


@pytest.mark.parametrize("raw", [b"\x01", b"\x05\x00\x00\x00abc", b"\x00\x00\x00\x00\x01\x00"])
def test_cut_bytes_are_refused(raw: bytes) -> None:
    """A BYTES tensor that ends inside an element is an error, not a shorter answer."""
    with pytest.raises(ValueError, match="past the end"):
        from_raw(raw, "BYTES", (1,))


@pytest.mark.parametrize(
    ("raw", "datatype", "shape"),
    [(b"\x00" * 7, "FP32", (2,)), (b"\x00" * 12, "FP32", (2,)), (b"", "FP128", (0,))],
)
def test_bytes_that_do_not_fill_the_shape_are_refused(
    raw: bytes, datatype: str, shape: tuple[int, ...]
) -> None:
    """Too few bytes, too many, or an unknown type: never a guess."""
    with pytest.raises(ValueError, match=r"size|shape|unknown"):
        from_raw(raw, datatype, shape)


def test_outputs_share_the_bytes_they_came_in() -> None:
    """Decoding numbers copies nothing."""
    raw = bytes(range(16))
    array = from_raw(raw, "UINT8", (4, 4))
    assert np.shares_memory(array, np.frombuffer(raw, np.uint8))
    assert not array.flags.writeable
