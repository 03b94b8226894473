"""An answer as bytes, and what is not one."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tritonkit.client.cache import Entry
from tritonkit.client.cache.entry import KEY_BYTES, decode, encode
from tritonkit.client.wire.messages import schema
from tritonkit.client.wire.tensors import FIXED

KEY = b"u" + bytes(range(KEY_BYTES - 1))
WORDS = np.array([[b"seven", b""], [b"\x00\xff", "é".encode()]], dtype=object)
ENTRY = Entry("digits", "3", {"score": np.arange(6, dtype=np.float32).reshape(2, 3), "label": WORDS})


def same(one: Entry, other: Entry) -> bool:
    """Whether two answers say the same."""
    return (
        one[:2] == other[:2]
        and list(one.outputs) == list(other.outputs)
        and all(
            a.shape == b.shape and a.dtype == b.dtype and a.tolist() == b.tolist()
            for a, b in zip(one.outputs.values(), other.outputs.values(), strict=True)
        )
    )


def sealed(body: bytes) -> bytes:
    """Any bytes after a right checksum, as somebody who knows the layout would forge them."""
    return blake2b(body, digest_size=16).digest() + body


BODY = encode(ENTRY, KEY)[16:]


def test_an_answer_comes_back_as_it_was() -> None:
    """Names, order, shapes, types and values survive, and nobody can write to the arrays."""
    back = decode(encode(ENTRY, KEY), KEY)
    assert back is not None
    assert same(back, ENTRY)
    for array in back.outputs.values():
        assert not array.flags.writeable
        assert array.flags.aligned
    with pytest.raises(ValueError, match="WRITEABLE"):
        back.outputs["score"].flags.writeable = True


def test_cells_come_back_as_bytes() -> None:
    """BYTES are objects of type bytes, not views of the stored answer."""
    back = decode(encode(ENTRY, KEY), KEY)
    assert back is not None
    assert {type(cell) for cell in back.outputs["label"].flat} == {bytes}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*FIXED.values()]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0))
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
)
def test_every_type_and_shape_comes_back(array: NDArray[Any], name: str) -> None:
    """Arrays of all of numpy's types Triton has, of any shape, also of no axes and no elements."""
    back = decode(encode(Entry(name, name, {name: array}), KEY), KEY)
    assert back is not None
    there = back.outputs[name]
    assert (there.shape, there.dtype) == (array.shape, array.dtype)
    assert there.tobytes() == array.tobytes()


def test_big_endian_arrays_come_back_little_endian() -> None:
    """Data on the way is little-endian, whatever the array was."""
    back = decode(encode(Entry("m", "1", {"y": np.arange(3, dtype=">i4")}), KEY), KEY)
    assert back is not None
    assert back.outputs["y"].tolist() == [0, 1, 2]


def test_a_type_triton_does_not_have_is_refused() -> None:
    """Complex numbers and dates cannot have been an answer."""
    for dtype in ("c8", "M8[s]"):
        with pytest.raises(ValueError, match="Triton has no type"):
            encode(Entry("m", "1", {"y": np.zeros(2, dtype)}), KEY)


def test_an_answer_cut_anywhere_is_none() -> None:
    """No beginning of an answer is taken for one, and nothing may follow it."""
    whole = encode(ENTRY, KEY)
    for length in range(len(whole)):
        assert decode(whole[:length], KEY) is None
    assert decode(whole + b"\x00", KEY) is None


def test_an_answer_with_any_byte_changed_is_none() -> None:
    """The checksum notices every single changed byte."""
    whole = bytearray(encode(ENTRY, KEY))
    for at in range(len(whole)):
        whole[at] ^= 0x40
        assert decode(bytes(whole), KEY) is None
        whole[at] ^= 0x40
    assert decode(bytes(whole), KEY) is not None


def test_another_keys_answer_is_none() -> None:
    """An answer under a key that is not its own is not used."""
    assert decode(encode(ENTRY, KEY), KEY[:-1] + b"x") is None


def test_foreign_bytes_are_none() -> None:
    """Another program's values, pickles, an answer without a key: nothing is read from them."""
    assert decode(sealed(BODY), KEY) is not None
    unnamed = schema().ModelInferResponse(model_name="digits", model_version="3")
    for data in (
        BODY,
        b"TKPC\x01\x00" + sealed(BODY),
        sealed(unnamed.SerializeToString()),
        b"",
        b"hello",
        b"\x80\x04\x95" + bytes(100),
        sealed(b""),
    ):
        assert decode(data, KEY) is None


def forged(shape: tuple[int, ...], datatype: str, *data: bytes) -> bytes:
    """An answer of one output with these statements about it."""
    message = schema().ModelInferResponse(model_name="m", model_version="1")
    message.parameters["tritonkit_key"].string_param = KEY.hex()
    message.outputs.add(name="y", datatype=datatype, shape=shape)
    message.raw_output_contents.extend(data)
    return sealed(message.SerializeToString())


def test_a_forged_answer_with_a_right_checksum_is_read_or_none() -> None:
    """Contradictions inside a sealed answer never raise and never take memory by what they claim."""
    assert decode(forged((2,), "FP32", bytes(8)), KEY) is not None
    for data in (
        forged((3,), "FP32", bytes(8)),
        forged((2**62, 2**62), "FP32", bytes(8)),
        forged((-1,), "FP32", bytes(8)),
        forged((2**40,), "BYTES", bytes(8)),
        forged((0, 2**62), "FP32", bytes(4)),
        forged((1,), "FP99", bytes(4)),
        forged((1,) * 70, "UINT8", bytes(1)),
        forged((2,), "FP32"),
        forged((2,), "FP32", bytes(8), bytes(8)),
        forged((1,), "BYTES", b"\xff\xff\xff\xffabcd"),
        sealed(BODY + b"\xff\xff\xff\xff"),
    ):
        assert decode(data, KEY) is None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_sealed_bytes_raise(data: st.DataObject) -> None:
    """Whatever is changed under a right checksum, reading gives an answer or None."""
    body = bytearray(BODY)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for forged_body in (bytes(body), bytes(body[:cut])):
        back = decode(sealed(forged_body), KEY)
        assert back is None or isinstance(back, Entry)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    """Random bytes, plain and with a right checksum, are None."""
    assert decode(data, KEY) is None
    assert decode(sealed(data), KEY) is None
