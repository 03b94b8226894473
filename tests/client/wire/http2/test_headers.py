"""Header fields: what we write a peer reads, and small from the second call on."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritonkit.client.wire.http2.frame_reader import ProtocolError
from tritonkit.client.wire.http2.headers import RequestHeaders, ResponseHeaders
from tritonkit.client.wire.secure import Secret

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)


def decoded(decoder: hpack.Decoder, block: bytes) -> dict[str, str]:
    """The fields as a peer reads them."""
    return {str(name): str(value) for name, value in decoder.decode(block)}


@given(
    methods=st.lists(st.sampled_from(["ModelInfer", "ModelMetadata", "ServerLive"]), max_size=6),
    value=TEXT,
    timeout_s=st.floats(0.001, 2_000_000),
    limit=st.sampled_from([None, 0, 100, 300, 10_000]),
)
def test_a_peer_reads_what_was_meant(methods: list[str], value: str, timeout_s: float, limit: int | None) -> None:
    """The fields arrive whatever the order of calls, and when the peer's table shrinks between them."""
    fields = RequestHeaders("host:1", False, (("x-own", value),), (("x-key", "k"),), frozenset({"ServerLive"}))
    peer = hpack.Decoder()
    for turn, method in enumerate(methods):
        if turn == 2 and limit is not None:
            fields.resize(limit)
            peer.max_allowed_table_size = min(limit, 4096)
        read = decoded(peer, fields.block(method, timeout_s, (("x-call", value),)))
        assert read[":method"] == "POST"
        assert read[":scheme"] == "http"
        assert read[":path"] == f"/inference.GRPCInferenceService/{method}"
        assert read[":authority"] == "host:1"
        assert read["te"] == "trailers"
        assert read["content-type"] == "application/grpc"
        assert read["x-own"] == read["x-call"] == value
        assert ("x-key" in read) is (method == "ServerLive")
        number, unit = int(read["grpc-timeout"][:-1]), read["grpc-timeout"][-1]
        told_s = number / {"m": 1000, "S": 1}[unit]
        assert number < 10**8
        assert timeout_s <= told_s * (1 + 1e-9)
        assert told_s <= timeout_s + max(0.011, timeout_s * 1e-4)


def test_a_repeated_block_is_short() -> None:
    """Fields that repeat are a byte each; the timeout, which differs, a few."""
    fields = RequestHeaders("triton.example.com:8001", True)
    assert len(fields.block("ModelInfer", 5.0)) > 100
    assert len(fields.block("ModelInfer", 4.9)) < 20
    assert len(fields.block("ModelInfer", None)) < 12


def test_a_secret_is_never_put_into_a_table() -> None:
    """Not ours, and marked for those on the way."""
    fields = RequestHeaders("h:1", True, (("authorization", Secret("Bearer hush")),))
    peer = hpack.Decoder()
    for _ in range(2):
        entries = [f for f in peer.decode(fields.block("ModelInfer", 5.0)) if f[0] == "authorization"]
        assert isinstance(entries[0], hpack.NeverIndexedHeaderTuple)
        assert entries[0][1] == "Bearer hush"
    assert not any(b"hush" in value for _, value in peer.header_table.dynamic_entries)


def test_a_secret_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """hpack logs what it writes; a secret, and a header of one call, is not given to it."""
    caplog.set_level("DEBUG")
    fields = RequestHeaders("h:1", True, (("authorization", Secret("Bearer hush")),))
    assert b"hush" in fields.block("ModelInfer", 5.0, (("x-own", "hushed"),))
    assert ":authority" in caplog.text
    assert "hush" not in caplog.text


def test_an_answer_known_by_its_bytes_is_forgotten_when_the_table_changes() -> None:
    """The same bytes can mean another field later."""
    encoder, answers = hpack.Encoder(), ResponseHeaders()
    encoder.encode([("grpc-status", "0")])
    first = hpack.Encoder()
    answers.read(first.encode([("grpc-status", "3")]))
    index = bytes([0xBE])  # the newest entry
    assert answers.read(index).status == answers.read(index).status == 3
    answers.read(first.encode([("grpc-status", "5")]))
    assert answers.read(index).status == 5


@pytest.mark.parametrize(("text", "status"), [("x", 2), ("-1", 2), ("", 2), ("99", 99), ("1" * 20, 2)])
def test_a_status_that_is_no_number_is_unknown(text: str, status: int) -> None:
    """The text means UNKNOWN, as gRPC specifies."""
    assert ResponseHeaders().read(hpack.Encoder().encode([("grpc-status", text)])).status == status


def test_a_block_that_is_none() -> None:
    """It breaks the protocol, whatever is wrong."""
    with pytest.raises(ProtocolError, match="header fields that are none"):
        ResponseHeaders().read(b"\xff\xff\xff\xff\xff\xff")
