"""The wire with a server's side written with the library h2, for what no real server can be made to do."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from h2.errors import ErrorCodes
from h2.events import DataReceived, PingAckReceived, StreamReset
from h2.settings import SettingCodes

from tests.client.wire.kinds import Connect
from tritonkit.errors import InferenceError, Overloaded, ServerUnavailable

from .peer import OK, START, Peer, playing, prefixed


def call(transport: Any, data: bytes = b"hello") -> bytes:
    """One call."""
    return bytes(transport.send("ModelInfer", [data], 60.0))


def test_windows_of_one_byte(connect: Connect) -> None:
    """A request goes byte by byte, and arrives whole."""
    data = bytes(range(256)) * 4
    bodies: list[bytes] = []

    def script(peer: Peer) -> None:
        stream = peer.request()
        bodies.append(bytes(peer.bodies[stream]))
        peer.answer(stream)
        peer.serve()

    with playing(script, {SettingCodes.INITIAL_WINDOW_SIZE: 1}) as address:
        transport = connect(address)
        assert call(transport, data) == b""
        assert call(transport) == b""
    assert bodies == [prefixed(data)]


def test_windows_that_change_amid_a_request(connect: Connect) -> None:
    """SETTINGS open a shut window, and shut an open one for the next call."""
    data = bytes(100_000)

    def script(peer: Peer) -> None:
        peer.credit = False
        peer.h2.increment_flow_control_window(2**20)
        while sum(map(len, peer.bodies.values())) < 10:
            peer.event()
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**20})
        peer.flush()
        stream = peer.request()
        assert bytes(peer.bodies[stream]) == prefixed(data)
        peer.answer(stream, b"whole")
        peer.serve()

    with playing(script, {SettingCodes.INITIAL_WINDOW_SIZE: 10}) as address:
        assert call(connect(address), data) == b"whole"


@pytest.mark.parametrize("size", [20_000, 60_000])
def test_header_fields_in_continuation_frames(connect: Connect, size: int) -> None:
    """At the start and at the end of an answer, near the limit too; the next call reads on."""

    def script(peer: Peer) -> None:
        while True:
            stream = peer.request()
            peer.h2.streams[stream].max_outbound_frame_size = 1000
            big = ("x-own", "v" * size)
            peer.h2.send_headers(stream, (*START, big))
            peer.h2.send_data(stream, prefixed(b"answer"))
            peer.h2.send_headers(stream, (big, *OK), end_stream=True)
            peer.flush()

    with playing(script) as address:
        transport = connect(address)
        for _ in range(3):
            assert call(transport) == b"answer"


def test_header_fields_over_the_limit(connect: Connect) -> None:
    """More than was allowed by our SETTINGS: a clear error, and the next call has a new connection."""
    first = threading.Event()

    def script(peer: Peer) -> None:
        if not first.is_set():
            first.set()
            stream = peer.request()
            peer.h2.send_headers(stream, (*START, ("x-own", "v" * 70_000)))
            peer.flush()
        peer.serve()

    with playing(script) as address:
        transport = connect(address)
        with pytest.raises(ServerUnavailable, match="header fields"):
            call(transport)
        assert call(transport) == b""


@pytest.mark.parametrize("pings", [100, 1000])
def test_pings_amid_a_call(connect: Connect, pings: int) -> None:
    """Each is acknowledged, and the call answered."""
    acknowledged: list[int] = []

    def script(peer: Peer) -> None:
        stream = peer.request()
        for number in range(pings):
            peer.h2.ping(number.to_bytes(8))
            if number % 100 == 99:
                peer.flush()
        while len(acknowledged) < pings:
            event = peer.event()
            if isinstance(event, PingAckReceived):
                acknowledged.append(int.from_bytes(event.ping_data))
        peer.answer(stream)
        peer.serve()

    with playing(script) as address:
        assert call(connect(address)) == b""
    assert acknowledged == list(range(pings))


def test_a_flood_of_pings(connect: Connect) -> None:
    """Ten thousand at once: an error of ours or an answer, no hang, and the next call goes on."""
    flooded = threading.Event()

    def script(peer: Peer) -> None:
        if not flooded.is_set():
            flooded.set()
            stream = peer.request()
            for number in range(10_000):
                peer.h2.ping(number.to_bytes(8))
            peer.flush()
            peer.answer(stream)
        peer.serve()

    with playing(script) as address:
        transport = connect(address)
        with contextlib.suppress(ServerUnavailable):
            assert call(transport) == b""
        assert call(transport) == b""


def test_an_error_without_an_answer(connect: Connect) -> None:
    """One HEADERS frame with the status in it; its message is unescaped, or shown as it is."""
    raw = ["full:%20100%25%20%e6%a8%a1", "half %", "%zz", "%ff%fe", "line%0Aend"]
    expected = ["full: 100% 模", "half %", "%zz", "��", "line\nend"]

    def script(peer: Peer) -> None:
        for message in raw:
            fields = (*START, ("grpc-status", "8"), ("grpc-message", message))
            peer.h2.send_headers(peer.request(), fields, end_stream=True)
            peer.flush()
        peer.serve()

    with playing(script) as address:
        transport = connect(address)
        for message in expected:
            with pytest.raises(Overloaded) as caught:
                call(transport)
            assert caught.value.found == f"RESOURCE_EXHAUSTED: {message}"
        assert call(transport) == b""


def test_a_compressed_message(connect: Connect) -> None:
    """Refused by name: the client never says that it reads compressed messages."""

    def script(peer: Peer) -> None:
        stream = peer.request()
        assert "grpc-accept-encoding" not in peer.headers[stream]
        peer.h2.send_headers(stream, (*START, ("grpc-encoding", "gzip")))
        peer.h2.send_data(stream, prefixed(b"\x1f\x8b", 1))
        peer.h2.send_headers(stream, OK, end_stream=True)
        peer.flush()
        peer.serve()

    with playing(script) as address:
        transport = connect(address)
        with pytest.raises(InferenceError, match="a compressed message"):
            call(transport)
        assert call(transport) == b""


def test_a_call_that_is_reset_while_another_runs(connect: Connect) -> None:
    """RST_STREAM ends that call alone, also amid its answer."""

    def script(peer: Peer) -> None:
        stream = peer.request()
        peer.h2.send_headers(stream, START)
        peer.h2.send_data(stream, prefixed(b"answer")[:7])
        peer.h2.reset_stream(stream, ErrorCodes.INTERNAL_ERROR)
        peer.flush()
        peer.serve()

    with playing(script) as address:
        transport = connect(address)
        with pytest.raises(InferenceError, match=r"reset the call \(INTERNAL_ERROR\)"):
            call(transport)
        assert call(transport) == b""


def test_padded_frames(connect: Connect) -> None:
    """Padding is dropped, and counted for the windows."""

    def script(peer: Peer) -> None:
        stream = peer.request()
        peer.h2.send_headers(stream, START)
        data = prefixed(bytes(100_000))
        for at in range(0, len(data), 100):
            peer.h2.send_data(stream, data[at : at + 100], pad_length=255)
        peer.h2.send_headers(stream, OK, end_stream=True)
        peer.flush()
        peer.serve()

    with playing(script) as address:
        transport = connect(address)
        assert call(transport) == bytes(100_000)
        assert call(transport) == b""


def test_the_end_of_a_stream_is_said_once(connect: Connect) -> None:
    """h2 would refuse a second end, or a frame after it, as it does any breach of the protocol."""

    def script(peer: Peer) -> None:
        peer.answer(peer.request(), b"last")
        peer.serve()

    with playing(script) as address:
        transport = connect(address)
        stream = transport.stream()
        stream.write([b"one"], 60.0)
        stream.end()
        stream.end()
        assert bytes(stream.read(60.0)) == b"last"
        assert stream.read(60.0) is None
        stream.cancel()
        assert call(transport) == b""


def test_a_stream_given_up_amid_messages(connect: Connect) -> None:
    """The server hears a reset once, and the connection goes on."""
    resets: list[int] = []
    heard = threading.Event()

    def script(peer: Peer) -> None:
        peer.until(DataReceived)
        peer.h2.send_headers(1, START)
        for _ in range(10):
            peer.h2.send_data(1, prefixed(b"message"))
        peer.flush()
        peer.until(StreamReset)
        resets.extend(peer.resets)
        heard.set()
        peer.serve()

    with playing(script) as address:
        transport = connect(address)
        stream = transport.stream()
        stream.write([b"one"], 60.0)
        assert bytes(stream.read(60.0)) == b"message"
        stream.cancel()
        assert heard.wait(60)
        assert call(transport) == b""
    assert resets == [1]
