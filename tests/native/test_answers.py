"""A client's view of a refused message: an answer between the server's own frames."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.conftest import LIMIT
from tests.native.guarded import (
    DATA,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    Receiver,
    Step,
    fields,
    frame,
    frames,
    message,
)

START = PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, 4, 1) + frame(HEADERS, 4, 3)
TOO_LARGE = frame(DATA, 0, 1, message(LIMIT + 1))
OURS = frame(SETTINGS, 0, 0)
PROTOCOL_ERROR, NO_ERROR = b"\0\0\0\1", b"\0\0\0\0"
RESET = frame(RST_STREAM, 0, 1, PROTOCOL_ERROR)
RESPONSE = frame(HEADERS, 4, 1, b"\x88")


def answer_to(receiver: Receiver, *steps: Step) -> list[tuple[int, int, int, bytes]]:
    """The frames that a client gets back which opens two streams and sends too much in the first."""
    _, answer = receiver.exchange(START + TOO_LARGE, [len(START), *steps])
    return frames(answer)


def test_the_answer_names_both_sizes_and_the_reset_is_no_error(receiver: Receiver) -> None:
    """RESOURCE_EXHAUSTED with grpc-core's words, then RST_STREAM with NO_ERROR."""
    ours, answer, reset = answer_to(receiver, [OURS.hex()], len(TOO_LARGE), [RESET.hex()])
    assert ours[0] == SETTINGS
    assert answer[:3] == (HEADERS, 4 | END_STREAM, 1)
    assert fields(answer[3]) == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-status": "8",
        "grpc-message": f"Received message larger than max ({LIMIT + 1} vs. {LIMIT})",
    }
    assert reset == (RST_STREAM, 0, 1, NO_ERROR)


def test_a_compressed_message_is_unimplemented(receiver: Receiver) -> None:
    """The answer says that compression is not taken, and what to do."""
    sent = frame(DATA, 0, 3, message(5, b"hello", flag=1))
    _, answer = receiver.exchange(START + sent, [[OURS.hex()], len(START + sent), [OURS.hex()]])
    kind, _, stream, block = frames(answer)[1]
    assert (kind, stream) == (HEADERS, 3)
    assert fields(block)["grpc-status"] == "12"
    assert "without compression" in fields(block)["grpc-message"]


def test_a_stream_that_was_answered_gets_trailers_alone(receiver: Receiver) -> None:
    """Response headers are not sent twice."""
    got = answer_to(receiver, [(OURS + RESPONSE).hex()], len(TOO_LARGE), [RESET.hex()])
    assert [received[0] for received in got] == [SETTINGS, HEADERS, HEADERS, RST_STREAM]
    assert list(fields(got[2][3])) == ["grpc-status", "grpc-message"]


def test_the_answer_waits_for_the_end_of_a_frame(receiver: Receiver) -> None:
    """A frame of the server's that is half sent is sent to its end first."""
    data = frame(DATA, 0, 3, b"d" * 40)
    for cut in range(1, len(data)):
        steps: list[Step] = [[(OURS + data[:cut]).hex()], len(TOO_LARGE), [data[cut:].hex(), RESET.hex()]]
        got = answer_to(receiver, *steps)
        assert [received[0] for received in got] == [SETTINGS, DATA, HEADERS, RST_STREAM]
        assert got[3][3] == NO_ERROR


def test_nothing_comes_before_the_servers_settings(receiver: Receiver) -> None:
    """The first frame of a connection is SETTINGS, however early a message is refused."""
    got = answer_to(receiver, len(TOO_LARGE), [OURS.hex()], [RESET.hex()])
    assert [received[0] for received in got] == [SETTINGS, HEADERS, RST_STREAM]


def test_resets_of_other_streams_stay_as_they_are(receiver: Receiver) -> None:
    """The error code of a stream that the guard has not refused is the server's."""
    other = frame(RST_STREAM, 0, 3, PROTOCOL_ERROR)
    got = answer_to(receiver, [OURS.hex()], len(TOO_LARGE), [(other + RESET + RESET).hex()])
    assert [received[2:] for received in got[2:]] == [(3, PROTOCOL_ERROR), (1, NO_ERROR), (1, NO_ERROR)]


def test_a_client_that_piles_up_refusals_is_reset(receiver: Receiver) -> None:
    """Answers that wait to be sent take bounded memory: after 64 at most the connection is reset."""
    sent = PREFACE + b"".join(
        frame(HEADERS, 4, number) + frame(DATA, 0, number, message(LIMIT + 1)) for number in range(1, 400, 2)
    )
    came, _ = receiver.exchange(sent, [len(sent)])
    assert came == ["ConnectionResetError"]


server_frames = st.lists(
    st.sampled_from(
        [
            RESET,
            frame(RST_STREAM, 0, 3, PROTOCOL_ERROR),
            frame(DATA, 0, 3, b"\0\0\4\3\0\0\0\0\1\0\0\0\1"),  # looks like a reset, and is data
            frame(SETTINGS, 1, 0),
            frame(8, 0, 0, b"\0\0\0\1"),
            frame(DATA, 0, 3),
        ]
    ),
    max_size=8,
).map(b"".join)


@settings(max_examples=200)
@given(server_frames, server_frames, st.data())
def test_answers_never_break_the_servers_frames(
    receiver: Receiver, before: bytes, after: bytes, data: st.DataObject
) -> None:
    """However the server's sending is cut: its frames and one answer come whole and in order."""
    ours = OURS + before + after
    pieces, at = [], 0
    while at < len(ours):
        length = data.draw(st.integers(1, 30))
        pieces.append(ours[at : at + length].hex())
        at += length
    moment = data.draw(st.integers(0, len(pieces)))
    # The server's own reset before the refusal ends the stream: its message is then nobody's.
    sent = b"".join(bytes.fromhex(piece) for piece in pieces[:moment])
    gone = any(sent[at:].startswith(RESET) for at in starts(sent))
    steps: list[Step] = [[piece] for piece in pieces]
    steps.insert(moment, len(TOO_LARGE))
    got = answer_to(receiver, *steps, [OURS.hex()])
    ours += OURS
    assert [head(received) for received in got if received[0] != HEADERS] == [ours[at : at + 9] for at in starts(ours)]
    answers = [place for place, received in enumerate(got) if received[0] == HEADERS]
    assert len(answers) == (0 if gone else 1)
    resets = [received[3] for received in got if (received[0], received[2]) == (RST_STREAM, 1)]
    if answers and (RST_STREAM, 0, 1, PROTOCOL_ERROR) not in got[: answers[0]]:
        assert fields(got[answers[0]][3])["grpc-status"] == "8"
        assert resets[:1] in ([], [NO_ERROR])
    else:
        assert set(resets) <= {PROTOCOL_ERROR}


def starts(data: bytes) -> list[int]:
    """Offsets in `data` of the frames whose heads are complete."""
    places, at = [], 0
    while at + 9 <= len(data):
        places.append(at)
        at += 9 + int.from_bytes(data[at : at + 3], "big")
    return places


def head(received: tuple[int, int, int, bytes]) -> bytes:
    """A frame's head again."""
    return frame(*received)[:9]
