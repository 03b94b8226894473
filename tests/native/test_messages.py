"""Messages that are too large or compressed never reach the reader as such."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.conftest import LIMIT
from tests.native.guarded import (
    ANNOUNCED,
    DATA,
    END_STREAM,
    HEADERS,
    MOST_STREAMS,
    PADDED,
    PREFACE,
    REFUSED,
    RST_STREAM,
    SETTINGS,
    Receiver,
    frame,
    frames,
    message,
)
from tests.native.rule import follow
from tests.ports import free_port

OPENING = PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 4, 1, b"\x82")


def check(receiver: Receiver, data: bytes, readings: list[int]) -> list[int]:
    """Hold what the guard does against the rule; gives the streams that were refused."""
    came, _ = receiver.exchange(data, readings)
    assert len(data) == sum(readings)
    outcome = follow(data, readings, LIMIT)
    at = 0
    for number, (length, answer) in enumerate(zip(readings, came, strict=True)):
        if outcome.reset_at is not None and number >= outcome.reset_at:
            assert answer == "ConnectionResetError"
        else:
            assert answer == bytes(outcome.data[at : at + length])
        at += length
    return outcome.refused if outcome.reset_at is None else [-1]


def pieces(data: bytes, *lengths: int) -> list[int]:
    """Readings of these lengths, and one for the rest."""
    return [length for length in (*lengths, len(data) - sum(lengths)) if length]


@pytest.mark.parametrize(("length", "refused"), [(LIMIT, []), (LIMIT + 1, [1]), (2**32 - 1, [1])])
def test_the_limit_is_the_largest_that_passes(receiver: Receiver, length: int, refused: list[int]) -> None:
    """A message of exactly the limit passes as it is; one byte more is marked."""
    data = OPENING + frame(DATA, 0, 1, message(length, b"x" * min(length, 3000)))
    assert check(receiver, data, [len(data)]) == refused


def test_a_compressed_message_is_refused(receiver: Receiver) -> None:
    """However short it is: what it holds decompressed cannot be known before."""
    data = OPENING + frame(DATA, END_STREAM, 1, message(3, b"abc", flag=1))
    assert check(receiver, data, [len(data)]) == [1]


@pytest.mark.parametrize("split", [False, True])
def test_a_second_message_of_a_stream_is_measured(receiver: Receiver, split: bool) -> None:
    """Every message of a stream counts, in whichever frame it begins."""
    first = message(5, b"hello") + message(0) + message(LIMIT, b"y" * LIMIT)
    second = message(LIMIT + 1, b"z" * 50)
    payloads = [first, second] if split else [first + second]
    data = OPENING + b"".join(frame(DATA, 0, 1, payload) for payload in payloads)
    assert check(receiver, data, [len(data)]) == [1]


def test_a_message_may_be_cut_anywhere(receiver: Receiver) -> None:
    """A legal message, read in two pieces, passes wherever the cut is."""
    data = OPENING + frame(DATA, 0, 1, message(3, b"abc") + message(4, b"defg"))
    for cut in range(1, len(data)):
        assert check(receiver, data, pieces(data, cut)) == []


def test_where_the_flags_were_read_the_next_frame_is_refused(receiver: Receiver) -> None:
    """Too large and read in two pieces, wherever the cut is: refused in this frame or the next."""
    data = OPENING + frame(DATA, 0, 1, message(LIMIT + 1, b"abc"))
    whole = data + frame(DATA, 0, 1, b"defg") + frame(DATA, END_STREAM, 1, b"hij")
    for cut in range(1, len(data)):
        assert check(receiver, whole, pieces(whole, cut)) == [1]


def test_a_cut_that_would_let_it_pass_resets_the_connection(receiver: Receiver) -> None:
    """The flags read before, and the whole message in the frame, or the next head cut too."""
    head = len(OPENING)
    whole = OPENING + frame(DATA, 0, 1, message(LIMIT + 1, b"x" * (LIMIT + 1)))
    part = OPENING + frame(DATA, 0, 1, message(LIMIT + 1, b"abc"))
    twice = part + frame(DATA, 0, 1, b"defg")
    for cut in range(head + 5, head + 14):
        assert check(receiver, whole, pieces(whole, cut)) == [-1]
        assert check(receiver, twice, pieces(twice, cut, len(part) + 6 - cut)) == [-1]


def test_a_prefix_over_several_frames_is_put_together(receiver: Receiver) -> None:
    """A prefix in frames of one byte is refused in the last of them."""
    prefix = message(LIMIT + 1)
    data = OPENING + b"".join(frame(DATA, 0, 1, prefix[at : at + 1]) for at in range(5))
    came, _ = receiver.exchange(data, [len(data)])
    assert isinstance(came[0], bytes)
    flags = [received[1] for received in frames(came[0][len(PREFACE) :]) if received[0] == DATA]
    assert flags == [0, 0, 0, 0, REFUSED]


@pytest.mark.parametrize("padding", [30, 255])
def test_padding_is_no_message(receiver: Receiver, padding: int) -> None:
    """Padding is skipped, more of it than the frame holds too, and the next message is measured."""
    text = b"" if padding == 255 else message(3, b"abc")
    data = OPENING + frame(DATA, PADDED, 1, bytes([padding]) + text + b"\xff" * 30)
    head = len(data)
    data += frame(DATA, PADDED, 1, b"\x02" + message(LIMIT + 1) + b"\xff\xff")
    assert check(receiver, data, [len(data)]) == [1]
    assert check(receiver, data, [len(OPENING) + 9, head - len(OPENING) - 9, len(data) - head]) == [1]


def test_streams_are_measured_apart(receiver: Receiver) -> None:
    """Interleaved messages of two streams do not mix: one is refused, the other passes."""
    large, small = message(LIMIT + 1), message(8, b"12345678")
    data = OPENING + frame(HEADERS, 4, 3, b"\x82")
    for at in range(5):
        data += frame(DATA, 0, 1, large[at : at + 1]) + frame(DATA, 0, 3, small[at : at + 1])
    data += frame(DATA, 0, 1, b"x" * 20) + frame(DATA, END_STREAM, 3, small[5:])
    assert check(receiver, data, [len(data)]) == [1]


def test_further_headers_do_not_end_the_watch(receiver: Receiver) -> None:
    """Three HEADERS with END_STREAM, which grpc-core does not all heed: data is measured still."""
    data = OPENING + 3 * frame(HEADERS, 4 | END_STREAM, 1, b"\x82")
    data += frame(DATA, 0, 1, message(LIMIT + 1))
    assert check(receiver, data, [len(data)]) == [1]


def test_what_does_not_speak_http2_is_reset(receiver: Receiver) -> None:
    """Bytes that could not be followed, TLS among them, are not passed on."""
    came, _ = receiver.exchange(b"GET / HTTP/1.1\r\n\r\n", [18])
    assert came == ["ConnectionResetError"]


def test_absurdly_many_open_streams_are_reset(receiver: Receiver) -> None:
    """2,048 calls may be open on a connection, twice what is announced; with one more it is reset."""
    heads = [frame(HEADERS, 4, number) for number in range(3, 2 * MOST_STREAMS + 3, 2)]
    fits, over = b"".join(heads[:-1]), heads[-1]
    came, _ = receiver.exchange(OPENING + fits + over, [len(OPENING), len(fits), len(over)])
    assert came == [OPENING, fits, "ConnectionResetError"]


@pytest.mark.parametrize(("window", "most"), [(0, 64), (16383, 64), (16384, 100)])
def test_calls_without_room_for_answers_are_few(receiver: Receiver, window: int, most: int) -> None:
    """64 may be open where a call's window is below a quarter of HTTP/2's default."""
    opening = PREFACE + frame(SETTINGS, 0, 0, b"\0\4" + window.to_bytes(4, "big"))
    heads = [frame(HEADERS, 4, number) for number in range(1, 201, 2)]
    fits, over = b"".join(heads[:most]), b"".join(heads[most:])
    came, _ = receiver.exchange(opening + fits + over, [len(opening + fits), len(over)])
    assert came == [opening + fits, "ConnectionResetError" if over else b""]


@pytest.mark.parametrize(("bound", "most"), [(1, 32), (40, 40)])
def test_calls_of_all_connections_have_a_bound(guard: Path, tmp_path: Path, bound: int, most: int) -> None:
    """Beyond it a connection with 32 open calls gets no more; one that has ended, and a call that was given up, count
    no longer."""
    path = str(tmp_path / "calls")
    limits = {"TRITONKIT_GUARD_MAX_MESSAGE_BYTES": "1000", "TRITONKIT_GUARD_CALLS": str(bound)}
    receiver = Receiver(guard, path, {"TRITONKIT_GUARD_GRPC_SOCKET": path, **limits})
    heads = [frame(HEADERS, 4, number) for number in range(1, 2 * most + 3, 2)]
    given_up = frame(RST_STREAM, 0, 1, bytes(4)) + heads.pop()
    fits, over = PREFACE + b"".join(heads) + given_up, frame(HEADERS, 4, 2 * most + 3)
    for _ in range(2):
        came, _ = receiver.exchange(fits + over, [len(fits), len(over)])
        assert came == [fits, "ConnectionResetError"]
    receiver.close()


def test_the_bound_on_calls_is_announced_first(receiver: Receiver) -> None:
    """A client that goes by it never comes near to the number that ends its connection."""
    with receiver.begin([[OPENING.hex()]]) as peer:
        got = b""
        while part := peer.recv(100):
            got += part
    receiver.end()
    assert got == ANNOUNCED + OPENING


def test_ended_streams_take_no_place(receiver: Receiver) -> None:
    """Streams that were reset are forgotten: 20,000 in a row are nothing unusual."""
    numbers = range(1, 40_001, 2)
    data = PREFACE + b"".join(
        frame(HEADERS, 4, number) + frame(RST_STREAM, 0, number, b"\0\0\0\x08") for number in numbers
    )
    came, _ = receiver.exchange(data, [len(data)])
    assert came == [data]


@pytest.mark.parametrize("own", [True, False])
def test_one_port_is_guarded_alone(guard: Path, own: bool) -> None:
    """Connections of gRPC's port are followed; those of another are passed on untouched."""
    port = free_port()
    guarded = port if own else port % 65535 + 1
    receiver = Receiver(
        guard, str(port), {"TRITONKIT_GUARD_GRPC_PORT": str(guarded), "TRITONKIT_GUARD_MAX_MESSAGE_BYTES": "1000"}
    )
    data = OPENING + frame(DATA, 0, 1, message(LIMIT + 1))
    came, _ = receiver.exchange(data, [len(data)])
    assert (came == [data]) is not own
    receiver.close()


bodies = st.one_of(
    st.binary(max_size=20),
    st.builds(
        message,
        st.sampled_from([0, 1, 3, LIMIT, LIMIT + 1, 2**31, 2**32 - 1]),
        st.binary(max_size=12),
        st.sampled_from([0, 0, 0, 1, 255]),
    ),
)
any_frame = st.one_of(
    st.builds(frame, st.just(DATA), st.sampled_from([0, END_STREAM, PADDED]), st.sampled_from([1, 1, 3, 5, 2]), bodies),
    st.builds(frame, st.just(HEADERS), st.sampled_from([4, 5]), st.sampled_from([1, 3, 5, 4])),
    st.builds(frame, st.just(RST_STREAM), st.just(0), st.sampled_from([1, 3]), st.binary(max_size=5)),
    st.builds(frame, st.integers(0, 255), st.integers(0, 255), st.integers(0, 9), st.binary(max_size=9)),
)


@settings(max_examples=300)
@given(st.lists(any_frame, max_size=12).map(b"".join), st.booleans(), st.lists(st.integers(1, 40), max_size=60))
def test_any_frames_in_any_pieces_follow_the_rule(
    receiver: Receiver, sent: bytes, cut_short: bool, lengths: list[int]
) -> None:
    """Frames of every kind, cut and read anywhere: the guard does what the rule says, and lives."""
    data = OPENING + sent
    data = data[:-3] if cut_short else data
    readings: list[int] = []
    for length in lengths:
        if sum(readings) + length < len(data):
            readings.append(length)
    check(receiver, data, pieces(data, *readings))


@settings(max_examples=150)
@given(st.binary(max_size=400), st.integers(1, 50))
def test_any_bytes_follow_the_rule(receiver: Receiver, sent: bytes, length: int) -> None:
    """Noise after the preface: the guard does what the rule says, and lives."""
    data = OPENING + sent
    check(receiver, data, pieces(data, *[length] * (len(data) // length)))
