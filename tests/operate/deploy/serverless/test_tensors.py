"""Tensors of the protocol: what goes out comes back, and nothing is rounded or cut on the way."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tritonkit_lambda.errors import RefusedRequest
from tritonkit_lambda.protocol import ModelSignature, read_request
from tritonkit_lambda.tensors import TYPES, from_binary, from_json, to_binary, to_json

NUMBERS = [name for name in TYPES if name != "BYTES"]


@given(st.data())
def test_numbers_survive_both_ways(data: st.DataObject) -> None:
    """Bit for bit as bytes; in JSON each finite number."""
    name = data.draw(st.sampled_from(NUMBERS))
    kind = np.dtype(TYPES[name])
    elements = arrays.from_dtype(kind, allow_nan=False, allow_infinity=False)
    array = data.draw(arrays.arrays(kind, arrays.array_shapes(max_dims=3, min_side=0), elements=elements))
    shape = list(array.shape)
    back = from_binary(to_binary(array), name, shape, "x")
    assert back.dtype == kind
    np.testing.assert_array_equal(back, array)
    if name != "FP16":
        written = json.loads(json.dumps(to_json("x", array)))
        np.testing.assert_array_equal(from_json(written, name, shape, "x", in_base64=False), array)
        nested = json.loads(json.dumps(array.tolist()))
        if array.size:
            np.testing.assert_array_equal(from_json(nested, name, shape, "x", in_base64=False), array)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_bytes_survive_as_bytes(items: list[bytes]) -> None:
    """Whatever they are, empty ones too."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    assert from_binary(to_binary(array), "BYTES", [len(items)], "x").tolist() == items


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("UINT8", [256]),
        ("UINT8", [-1]),
        ("INT64", [2**63]),
        ("INT32", [1.0]),
        ("INT32", [True]),
        ("BOOL", [1]),
        ("FP32", ["1"]),
        ("FP32", [None]),
        ("FP32", [1e39]),
        ("FP32", [float("nan")]),
        ("FP64", [10**400]),
        ("FP16", [1.0]),
        ("BYTES", ["\ud800"]),
    ],
)
def test_what_does_not_fit_its_type_is_refused(name: str, data: list[Any]) -> None:
    """Nothing wraps around, and nothing is taken for what it is not."""
    with pytest.raises(RefusedRequest):
        from_json(data, name, [1], "x", in_base64=False)


@pytest.mark.parametrize("raw", [b"\x01", b"\x05\0\0\0abc", b"\0\0\0\0\0\0\0\0", b""])
def test_bytes_that_end_too_early_or_late_are_refused(raw: bytes) -> None:
    """A length that is cut, content that is cut, an element too many, one too few."""
    with pytest.raises(RefusedRequest):
        from_binary(raw, "BYTES", [1], "x")


@pytest.mark.parametrize("array", [np.array([np.inf], np.float32), np.array([b"\xff"], object)])
def test_what_json_cannot_carry_is_said(array: np.ndarray) -> None:
    """With the way that can."""
    with pytest.raises(RefusedRequest, match=r"ask for it as bytes: parameters \{binary_data: true\}"):
        to_json("y", array)


@pytest.mark.parametrize("sizes", [[0, 2**70], [2**63, 0], [10**4000, 10**4000], [0, 2**31, 2**31, 2**31]])
def test_a_shape_beyond_all_bounds_is_refused(sizes: list[int]) -> None:
    """For a model with several free axes; numpy and Python's own text of numbers have bounds of their own."""
    signature = ModelSignature("m", "1", 0, {"x": ("FP32", (-1,) * len(sizes))}, {"y": ("FP32", (-1,))})
    tensor = {"name": "x", "datatype": "FP32", "shape": sizes, "data": []}
    with pytest.raises(RefusedRequest) as caught:
        read_request({"inputs": [tensor]}, b"", signature)
    assert len(str(caught.value)) < 200
