"""Every type of numpy, ml_dtypes and torch against every datatype: what loses nothing is taken, the rest is refused."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonkit.client import Client
from tritonkit.client.conform import conform
from tritonkit.client.wire.signature import TensorSpec
from tritonkit.client.wire.tensors import FIXED, from_raw, to_raw
from tritonkit.errors import InvalidInput
from tritonkit.testing import FakeModel, MemoryTransport

HERE = "model m, input x"
NUMBERS = (*FIXED, "BF16")
SMALL = (
    "bfloat16",
    "float4_e2m1fn",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "int2",
    "int4",
    "uint2",
    "uint4",
)
TORCH = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "uint16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)
SHORT = ["bool", "int8", "uint8", "int16", "uint16", "float16"]
"""Numpy's types of at most 16 bits: all their values can be tried."""


def sent(value: Any, datatype: str, dims: tuple[int, ...] = (-1,)) -> Any:
    """The array that arrives at the model, or the refusal."""
    try:
        array = conform(value, TensorSpec("x", datatype, dims), HERE)
    except InvalidInput as error:
        return error
    return from_raw(to_raw(array, datatype), datatype, array.shape)


def all_values(name: str) -> Any:
    """Each value of a type of at most 16 bits."""
    if name in SMALL:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        dtype = np.dtype(getattr(ml_dtypes, name))
        if name[:-1] in ("int", "uint"):  # fewer bits than the byte they lie in
            bits = int(name[-1])
            low = 0 if name.startswith("u") else -(2 ** (bits - 1))
            return np.arange(low, low + 2**bits).astype(dtype)
        bits = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}.get(name, 8 * dtype.itemsize)
    else:
        dtype = np.dtype(name)
        bits = 1 if name == "bool" else 8 * dtype.itemsize
    return np.arange(2**bits).astype(f"u{dtype.itemsize}").view(dtype)


def is_kept(before: Any, after: Any) -> bool:
    """Whether these are the same numbers."""
    with np.errstate(invalid="ignore"):  # signaling NaNs
        before, after = before.astype(np.float64), after.astype(np.float64)
    return bool(np.array_equal(before, after, equal_nan=True))


@pytest.mark.parametrize("name", [*SHORT, *SMALL])
@pytest.mark.parametrize("datatype", NUMBERS)
def test_a_type_is_taken_if_no_value_of_it_is_lost(name: str, datatype: str) -> None:
    """Tried with every value there is, against the cast itself: taken exactly where all are kept."""
    values = all_values(name)
    result = sent(values, datatype)
    if datatype == "BF16":
        import ml_dtypes

        target: Any = ml_dtypes.bfloat16
    else:
        target = FIXED[datatype]
    is_bool = (np.dtype(target) == bool) == (name == "bool") or name == "bool"
    with np.errstate(all="ignore"):
        plain = values.astype(np.float32 if values.dtype.kind in "Vf" else values.dtype)
        lossless = is_bool and is_kept(values, plain.astype(target))
    if (name, datatype) == ("float16", "BF16"):  # documented: rounded
        assert result.shape == values.shape
    elif lossless:
        assert not isinstance(result, InvalidInput), str(result)
        assert is_kept(values, result)
    else:
        assert isinstance(result, InvalidInput)
        assert f"an array of {name}" in str(result)
        assert datatype in str(result)


@given(data=st.data(), datatype=st.sampled_from(NUMBERS))
@pytest.mark.parametrize("name", ["int32", "uint32", "int64", "uint64", "float32", "float64", ">i8", ">f8", ">u2"])
def test_wide_arrays_arrive_as_they_were_or_not_at_all(name: str, data: st.DataObject, datatype: str) -> None:
    """Whatever the values, in any byte order; only float32 to BF16 rounds, as documented."""
    array = data.draw(npst.arrays(name, st.integers(0, 3)))
    result = sent(array, datatype)
    safe = datatype in FIXED and np.can_cast(array.dtype, FIXED[datatype], "safe")
    if isinstance(result, InvalidInput):
        exact = datatype == "FP64" and array.dtype.kind in "iu" and array.dtype.itemsize == 8
        assert not safe or exact
        if exact:
            assert any(int(float(value)) != int(value) for value in array)
    elif (array.dtype.name, datatype) != ("float32", "BF16"):
        assert [value for value in array.tolist() if value == value] == [
            value for value in result.tolist() if value == value
        ]


@given(values=st.lists(st.integers(-(2**70), 2**70) | st.integers(-300, 300), max_size=4))
@pytest.mark.parametrize("datatype", NUMBERS)
def test_whole_numbers_are_taken_where_the_type_has_them(datatype: str, values: list[int]) -> None:
    """Python's own, by value: exactly those that the type can hold."""
    result = sent(values, datatype)
    if datatype == "BOOL":
        assert isinstance(result, InvalidInput) == bool(values)
        return
    if datatype.startswith(("INT", "UINT")):
        limits = np.iinfo(FIXED[datatype])
        fits = all(limits.min <= value <= limits.max for value in values)
    else:
        bits, most = {"FP16": (11, 65504.0), "BF16": (8, 3.3895313892515355e38)}.get(
            datatype, (24, 3.4028234663852886e38) if datatype == "FP32" else (53, 1.7e308)
        )
        odd = [abs(value) // (value & -value) if value else 0 for value in values]
        fits = all(o < 2**bits and abs(v) <= most for o, v in zip(odd, values, strict=True))
    assert isinstance(result, InvalidInput) != fits
    if fits:
        assert [int(value) for value in result] == values


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("datatype", NUMBERS)
def test_torch_is_taken_as_numpy_is(name: str, datatype: str) -> None:
    """The same verdict for a tensor, alone and in a list, as for an array of that type."""
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([0.0, 1.0]).to(getattr(torch, name))
    if name in SMALL:
        array = np.array([0.0, 1.0]).astype(getattr(pytest.importorskip("ml_dtypes"), name))
    else:
        array = np.array([0.0, 1.0]).astype(name)
    for dims in ((-1,), (-1, -1)):
        of_torch, of_numpy = (
            sent(value if len(dims) == 1 else [value, value], datatype, dims) for value in (tensor, array)
        )
        assert isinstance(of_torch, InvalidInput) == isinstance(of_numpy, InvalidInput)
        if not isinstance(of_torch, InvalidInput):
            np.testing.assert_array_equal(of_torch, of_numpy)


def test_tensors_with_a_history() -> None:
    """One that needs a gradient, a conjugate view, strides: the values are all that counts."""
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1.5, 2.0], requires_grad=True)
    assert sent(tensor, "FP32").tolist() == [1.5, 2.0]
    assert sent(tensor.to(torch.bfloat16) * 2, "FP32").tolist() == [3.0, 4.0]
    imaginary = torch.tensor([1 + 2j]).conj().imag  # a view that is negated when it is read
    assert sent(imaginary, "FP32").tolist() == [-2.0]
    assert sent(torch.arange(6.0).reshape(2, 3).T[::2, 1], "FP32").tolist() == [3.0, 5.0]
    assert sent(torch.tensor(3, dtype=torch.uint8), "INT32", ()).tolist() == 3
    for odd in (torch.zeros(2, device="meta"), torch.zeros(2).to_sparse()):
        assert "tensor." in str(sent(odd, "FP32"))


HIDDEN = [0, 1, 0]


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("FP32", np.ma.array([1, 2, 3], mask=HIDDEN, dtype=np.float32)),
        ("INT64", np.ma.array([1, 2, 3], mask=HIDDEN)),
        ("BOOL", np.ma.array([True, False, True], mask=HIDDEN)),
        ("BYTES", np.ma.array([b"a", b"b", b"c"], mask=HIDDEN, dtype=object)),
        ("BYTES", np.ma.array(["a", "b", "c"], mask=HIDDEN)),
        ("FP64", [np.ma.array([1.0, 2.0, 3.0], mask=HIDDEN)]),
        ("FP64", ([np.ma.array([1.0, 2.0, 3.0], mask=HIDDEN)], [[1.0, 2.0, 3.0]])),
        ("BYTES", [np.ma.array([b"a", b"b", b"c"], mask=HIDDEN, dtype=object)]),
        ("FP32", [1.0, np.ma.masked]),
        ("FP32", np.ma.masked),
        ("BYTES", ["a", np.ma.masked]),
        ("FP32", np.ma.array(1.0, mask=True)),
    ],
)
def test_hidden_values_are_not_sent(datatype: str, value: Any) -> None:
    """A masked value is not data: the array is refused, with the two ways out."""
    message = str(sent(value, datatype))
    assert "masked" in message
    assert "filled" in message


def test_a_masked_array_that_hides_nothing_is_an_array() -> None:
    """Readers of measurement files often return such arrays."""
    assert sent(np.ma.array([1.5, 2.0], dtype=np.float32), "FP32").tolist() == [1.5, 2.0]
    assert sent(np.ma.array([1, 2], mask=[0, 0], dtype="i4"), "INT64").tolist() == [1, 2]
    assert sent(np.ma.array(["a", "b"]), "BYTES").tolist() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array(["ä", "bc"], np.dtypes.StringDType()), ["ä".encode(), b"bc"]),
        (np.array(["ä", "bc"], ">U2"), ["ä".encode(), b"bc"]),
        (np.array([b"ab\0\0", b"c\0d\0"], "V4"), [b"ab\0\0", b"c\0d\0"]),
        (np.array([b"a", b"bc"], "S4"), [b"a", b"bc"]),
        (np.array(["a", b"b\0", bytearray(b"c")], object), [b"a", b"b\0", b"c"]),
        ([np.str_("a"), np.bytes_(b"b"), memoryview(b"c\0")], [b"a", b"b", b"c\0"]),
    ],
)
def test_every_text_of_numpy(value: Any, expected: list[bytes]) -> None:
    """Texts of fixed and of any length, raw bytes with their zeros, and cells of several kinds."""
    assert sent(value, "BYTES").tolist() == expected


def test_texts_in_rows() -> None:
    """A list of text arrays is one array."""
    rows = [np.array(["a", "b"]), np.array(["c", "d"], np.dtypes.StringDType())]
    assert sent(rows, "BYTES", (-1, -1)).tolist() == [[b"a", b"b"], [b"c", b"d"]]
    assert sent(np.array("a"), "BYTES", ()).tolist() == b"a"


MISSING = np.dtypes.StringDType(na_object=None)


@pytest.mark.parametrize(
    ("datatype", "value", "says"),
    [
        ("FP32", np.array([1j]), "array.real"),
        ("INT64", np.array(["2026-01-01"], "M8[D]"), "count of its units"),
        ("INT64", np.array([1], "m8[s]"), "count of its units"),
        ("FP32", np.array([(1, 2)], [("a", "f4"), ("b", "f4")]), "array['a']"),
        ("FP32", np.array(["1.5"]), "is text"),
        ("FP32", np.array(["1.5"], np.dtypes.StringDType()), "is text"),
        ("FP32", np.array([1.5, None], object), "whose first element is a float"),
        ("FP32", [1.5, None], "one of which is a NoneType"),
        ("FP32", np.array([b"ab"], "V2"), "an array of void"),
        ("FP64", np.array([1], np.longdouble), "an array of"),
        ("FP64", np.array([2**53 + 1]), "values from"),
        ("BF16", np.array([257], np.int16), "an array of int16"),
        ("BF16", [3.4e38], "values that BF16 can hold"),
        ("FP32", {1.0}, "a"),
        ("BYTES", np.array(["a", None], MISSING), "NoneType"),
        ("BYTES", np.array([1]), "an array of int64"),
        ("BYTES", np.array([(b"a", 1)], [("a", "S1"), ("b", "i4")]), "BYTES: bytes or str"),
        ("BYTES", ["a", 1], "an element of type int"),
        ("BYTES", ["a", 1.5, b"b"], "an element of type float"),
        ("INT32", "1", "is text"),
        ("FP32", [[1.0], [1.0, 2.0]], "not a rectangular array"),
    ],
)
def test_a_refusal_says_what_it_is(datatype: str, value: Any, says: str) -> None:
    """The type that was found, and the call that makes it fit where there is one."""
    result = sent(value, datatype)
    assert isinstance(result, InvalidInput)
    assert says in str(result)


@pytest.mark.parametrize(
    ("datatype", "value", "expected"),
    [
        ("INT32", range(3), [0, 1, 2]),
        ("FP64", np.array([2**53, -(2**60)]), [2.0**53, -(2.0**60)]),
        ("FP16", [4096, 65504], [4096.0, 65504.0]),
        ("BF16", [258], [258.0]),
        ("UINT64", [np.uint64(2**63 + 1), 1], [2**63 + 1, 1]),
        ("INT64", [True, np.int8(2)], [1, 2]),
        ("FP32", [np.float16(1.5), 2, True], [1.5, 2.0, 1.0]),
        ("FP32", [], []),
    ],
)
def test_values_at_the_edge(datatype: str, value: Any, expected: list[Any]) -> None:
    """Values that the type holds exactly are accepted from any kind of list."""
    assert sent(value, datatype).tolist() == expected


def test_a_model_gets_what_was_given() -> None:
    """From the call to the function, for ml_dtypes and text; a server without types takes bfloat16 as BF16."""
    import ml_dtypes

    from tritonkit.client.inputs import assumed_specs

    model = FakeModel({"x": ("FP32", [-1])}, {"y": ("FP32", [-1])}, lambda inputs: {"y": inputs["x"]})
    with Client(transport=MemoryTransport({"same": model})) as client:
        value = np.array([1.5, 2], ml_dtypes.bfloat16)
        assert client.model("same").predict(x=value)["y"].tolist() == [[1.5, 2.0]]
    specs = assumed_specs("m", {"a": value, "b": np.array([1.0], ">f4")})
    assert [spec.datatype for spec in specs.values()] == ["BF16", "FP32"]
