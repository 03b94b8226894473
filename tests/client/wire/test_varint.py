"""Protobuf's pieces."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import UInt64Value
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.wire.fields import number, sized
from tritonkit.client.wire.varint import fields, read_varint, varint


@settings(deadline=None)
@given(value=st.integers(0, 2**64 - 1))
def test_numbers_come_back(value: int) -> None:
    """Every number of 64 bits is read as it was written, up to where it ends."""
    written = varint(value)
    assert read_varint(written + b"\x01", 0) == (value, len(written))


@settings(deadline=None)
@given(value=st.integers(0, 2**64 - 1))
def test_numbers_are_written_as_protobuf_writes_them(value: int) -> None:
    """The same bytes, as few as can be."""
    assert number(1, value) == (UInt64Value(value=value).SerializeToString() or b"\x08\x00")


@settings(deadline=None)
@given(written=st.binary(min_size=1, max_size=12))
def test_numbers_are_read_as_protobuf_reads_them(written: bytes) -> None:
    """Numbers longer than they need to be, or past 64 bits, mean the same to both."""
    try:
        value, end = read_varint(written, 0)
    except (ValueError, IndexError):
        return
    assert UInt64Value.FromString(b"\x08" + written[:end]).value == value


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9])
def test_a_cut_number_is_an_error(data: bytes) -> None:
    """A number whose last byte is missing is not read as a shorter one."""
    with pytest.raises(IndexError):
        read_varint(data, 0)


def test_a_number_of_eleven_bytes_is_an_error() -> None:
    """Bytes that never end a number are refused, however many there are."""
    with pytest.raises(ValueError, match="ten bytes"):
        read_varint(b"\xff" * 1000, 0)


def test_fields_are_found_one_after_the_other() -> None:
    """All four kinds of values are stepped over, in fields with small numbers and large ones."""
    message = sized(1, "é".encode()) + number(500, 1) + b"\x1d1234" + b"\x2112345678" + sized(6, b"")
    entries = [(tag >> 3, message[start:end]) for tag, start, end in fields(message)]
    assert entries == [(1, "é".encode()), (500, b"\x01"), (3, b"1234"), (4, b"12345678"), (6, b"")]


@pytest.mark.parametrize(
    "message", [b"\x0a\x05abc", b"\x09123", b"\x0d1", b"\x0b", b"\x0f", b"\x02\x00", b"\x0a\xff\xff\xff\x7f"]
)
def test_fields_that_make_no_sense_are_errors(message: bytes) -> None:
    """A value that ends too early, a wire type nobody uses, a field without a number."""
    with pytest.raises(ValueError, match="field"):
        list(fields(message))


@pytest.mark.parametrize("tag", [b"\x8a\x80\x80\x80\x80\x00", b"\x8a\x80\x80\x80\x10", b"\x80\x80\x80\x80\x80\x0a"])
def test_a_tag_has_32_bits(tag: bytes) -> None:
    """protobuf reads at most five bytes of it."""
    with pytest.raises(DecodeError):
        UInt64Value.FromString(tag + b"\x00")
    with pytest.raises(ValueError, match="32 bits"):
        list(fields(tag + b"\x00"))


@settings(deadline=None)
@given(tag=st.binary(min_size=1, max_size=7))
def test_tags_are_read_as_protobuf_reads_them(tag: bytes) -> None:
    """Protobuf reads everything that is read here."""
    try:
        entries = list(fields(tag + b"\x00" * 9))
    except (ValueError, IndexError):
        return
    UInt64Value.FromString((tag + b"\x00" * 9)[: entries[-1][2]])
