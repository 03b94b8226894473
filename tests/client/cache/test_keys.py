"""The identity of calls."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tritonkit.client.cache.entry import KEY_BYTES, is_pinned, key_of
from tritonkit.client.request import InferRequest, ModelState
from tritonkit.client.wire.signature import ModelSignature, TensorSpec


def key(
    *,
    namespace: str = "",
    model: str = "m",
    version: str = "",
    outputs: tuple[str, ...] | None = None,
    **inputs: tuple[str, NDArray[Any]],
) -> bytes:
    """A key of a call."""
    specs = {name: TensorSpec(name, datatype, (-1,) * array.ndim) for name, (datatype, array) in inputs.items()}
    every = {name: TensorSpec(name, "FP32", (-1,)) for name in ("a", "b", "ab", "y", "all")}
    request = InferRequest((model, version), {name: array for name, (_, array) in inputs.items()}, outputs)
    request.check(ModelState(ModelSignature(model, ("1",), 0, specs, every)))
    return key_of(namespace, version, request.canonical())


def words(*cells: bytes) -> NDArray[Any]:
    """An array of BYTES."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


KNOWN = "70d0e384a01bd7a342ef490bfdcdaed6c3e621adf24603220f5eb9156a46a0ec74"
FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_key_is_the_same_everywhere() -> None:
    """The key of a known call is this one, in any process, on any machine, in any release."""
    text = words(b"\x00a", b"")
    made = key(namespace="n", version="3", outputs=("y",), x=("FP32", FLOATS), text=("BYTES", text))
    assert made.hex() == KNOWN, "others would not find what was stored so far: count PREFIX up"


def test_a_key_does_not_depend_on_the_process() -> None:
    """A process with another hash seed makes the same key."""
    program = (
        "import numpy as np; from tests.client.cache.test_keys import key; "
        "print(key(x=('FP32', np.ones((1, 4), 'f4'))).hex())"
    )
    here = key(x=("FP32", np.ones((1, 4), np.float32))).hex()
    for seed in "12":
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == here, done.stderr


def test_different_calls_have_different_keys() -> None:
    """Every part counts: namespace, model, version, outputs, names, datatypes, shapes, bytes."""
    ones, twos = np.ones(4, np.float32), np.full(4, 2, np.float32)
    keys = [
        key(x=("FP32", ones)),
        key(x=("FP32", twos)),
        key(y=("FP32", ones)),
        key(x=("FP32", ones.reshape(2, 2))),
        key(x=("FP32", ones.reshape(1, 4))),
        key(x=("INT32", ones.view(np.int32))),
        key(x=("UINT32", ones.view(np.uint32))),
        key(x=("BF16", ones)),
        key(x=("FP32", ones), y=("FP32", twos)),
        key(x=("FP32", twos), y=("FP32", ones)),
        key(model="n", x=("FP32", ones)),
        key(namespace="n", x=("FP32", ones)),
        key(version="1", x=("FP32", ones)),
        key(outputs=("a",), x=("FP32", ones)),
        key(outputs=("a", "b"), x=("FP32", ones)),
        key(outputs=("ab",), x=("FP32", ones)),
        key(outputs=("all",), x=("FP32", ones)),
        key(model="mx", **{"": ("FP32", ones)}),
    ]
    assert len(set(keys)) == len(keys)
    assert {len(digest) for digest in keys} == {KEY_BYTES}


def test_cells_of_bytes_do_not_run_together() -> None:
    """The same bytes cut into other cells are another input, within an array and across two."""
    keys = {
        key(x=("BYTES", words(b"ab", b"c"))),
        key(x=("BYTES", words(b"a", b"bc"))),
        key(x=("BYTES", words(b"abc", b""))),
        key(x=("BYTES", words(b"a")), y=("BYTES", words(b"b\x00"))),
        key(x=("BYTES", words(b"a\x00")), y=("BYTES", words(b"b"))),
    }
    assert len(keys) == 5


def test_the_order_of_inputs_does_not_matter() -> None:
    """Two mappings with the same inputs in another order are the same call."""
    one, other = ("FP32", FLOATS), ("BYTES", words(b"z"))
    assert key(a=one, b=other) == key(b=other, a=one)


@pytest.mark.parametrize("repeats", [1, 1000])
def test_the_lie_in_memory_does_not_matter(repeats: int) -> None:
    """Strides and byte order do not change a key, for small and for large arrays."""
    plain = np.tile(FLOATS, (repeats, 1))
    expected = key(x=("FP32", plain))
    for array in (
        np.asfortranarray(plain),
        np.repeat(plain, 2, axis=1)[:, ::2],
        plain[::-1].copy()[::-1],
        plain.astype(">f4"),
    ):
        assert key(x=("FP32", array)) == expected


def test_arrays_of_no_axes_and_of_no_elements_have_keys() -> None:
    """A scalar, an empty array and an empty batch of BYTES are calls like others."""
    keys = {
        key(x=("FP32", np.array(1.0, np.float32))),
        key(x=("FP32", np.empty((0, 3), np.float32))),
        key(x=("FP32", np.empty((3, 0), np.float32))),
        key(x=("BYTES", words())),
        key(x=("BOOL", np.array([True]))),
        key(x=("FP16", np.ones(5000, np.float16))),
        key(),
    }
    assert len(keys) == 7


def test_a_key_says_whether_a_version_was_named() -> None:
    """Only calls that leave the version to the server depend on which it chooses."""
    assert is_pinned(key(version="2"))
    assert not is_pinned(key(version=""))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=8), max_size=4), st.lists(st.binary(max_size=8), max_size=4))
def test_only_equal_inputs_have_equal_keys(one: list[bytes], other: list[bytes]) -> None:
    """Two BYTES inputs have the same key exactly if they are the same."""
    same = key(x=("BYTES", words(*one))) == key(x=("BYTES", words(*other)))
    assert same == (one == other)
