"""Servers that send without end: a typed error, the next call goes on, and memory as of what came."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable

import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from tests.client.wire.kinds import Connect
from tritonkit.client import Client
from tritonkit.client.wire.http2 import frames
from tritonkit.client.wire.http2.call import BadMessage, Call
from tritonkit.client.wire.http2.connection import Connection
from tritonkit.client.wire.http2.headers import LARGEST_LIST, RequestHeaders
from tritonkit.client.wire.limits import ADMIN_BYTES, ANSWER_BYTES, AnswerLimit
from tritonkit.errors import InferenceError, ServerUnavailable

from .conftest import Peer, Script, prefixed

pytestmark = pytest.mark.slow

Play = Callable[[Script], str]

MIB = 2**20

MEASURED = """
    import asyncio, sys
    from tritonkit.client.wire.http2 import AsyncHttp2Transport, Http2Transport
    from tritonkit.errors import ClientError

    def peak():
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024

    def told(error):
        print(type(error).__name__, str(error).replace("\\n", " "))

    def threads():
        transport = Http2Transport(sys.argv[1])
        stream = None
        transport.send("ServerLive", [b"x" * 100], 20.0)
        before = peak()
        if sys.argv[2] == "stream":
            stream = transport.stream()
            stream.write([b"go"])
        try:
            print(len(transport.send("ModelInfer", [b"x"], 20.0)))
        except ClientError as error:
            told(error)
        print(peak() - before)

    async def tasks():
        transport = AsyncHttp2Transport(sys.argv[1])
        await transport.send("ServerLive", [b"x" * 100], 20.0)
        before = peak()
        if sys.argv[2] == "stream":
            stream = await transport.stream()
            await stream.write([b"go"])
        try:
            print(len(await transport.send("ModelInfer", [b"x"], 20.0)))
        except ClientError as error:
            told(error)
        print(peak() - before)
        await transport.close()

    threads() if sys.argv[3] == "threads" else asyncio.run(tasks())
"""


def measured(address: str, kind: str, what: str = "unary") -> tuple[str, int]:
    """The answers to a client in its own process, and its largest growth in bytes."""
    program = textwrap.dedent(MEASURED)
    done = subprocess.run(
        [sys.executable, "-c", program, address, what, kind], capture_output=True, text=True, check=True, timeout=60
    )
    output, grown = done.stdout.splitlines()
    return output, int(grown)


@pytest.fixture(params=["threads", "tasks"])
def kind(request: pytest.FixtureRequest) -> str:
    """One of the two kinds of clients."""
    client_kind: str = request.param
    return client_kind


def first_answered(flood: Callable[[Peer, int], None]) -> Script:
    """A peer that answers the first call, so that what a client needs once is loaded, and then floods."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.send(peer.answer(peer.request()))
        flood(peer, peer.request())
        peer.request()

    return script


def test_empty_messages_without_end(play: Play, kind: str) -> None:
    """The second message of a unary call is refused as it comes; the rest is not kept."""

    def flood(peer: Peer, stream: int) -> None:
        peer.send(peer.headers(stream, status="200"))
        for _ in range(640):
            peer.send(frames.frame(frames.DATA, 0, stream, bytes(5 * 3200)))

    output, grown = measured(play(first_answered(flood)), kind)
    assert "InferenceError" in output
    assert "more than one message" in output
    assert grown < 4 * MIB


def test_a_message_of_one_byte_frames(play: Play, kind: str) -> None:
    """A message in 300,000 frames takes what came at most, not an object for each."""
    message = bytes(300_000)

    def flood(peer: Peer, stream: int) -> None:
        peer.send(peer.headers(stream, status="200"))
        frame = [frames.frame(frames.DATA, 0, stream, bytes((byte,))) for byte in range(256)]
        peer.send(b"".join(frame[byte] for byte in prefixed(message)))
        peer.send(peer.headers(stream, ends=True, grpc_status="0"))

    output, grown = measured(play(first_answered(flood)), kind)
    assert output == "300000"
    assert grown < 10 * len(message) + 4 * MIB


def test_small_messages_of_a_stream_that_nobody_reads(play: Play, kind: str) -> None:
    """They take what came, not an object for each."""
    flood = prefixed(b"") * 1_000_000

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        peer.send(peer.answer(peer.request()))
        _, stream, _ = peer.until(frames.HEADERS)
        peer.send(peer.headers(stream, status="200"))
        for at in range(0, len(flood), 16_000):
            peer.send(frames.frame(frames.DATA, 0, stream, flood[at : at + 16_000]))
        peer.send(peer.answer(peer.request()))
        peer.request()

    output, grown = measured(play(script), kind, "stream")
    assert output == "0"
    assert grown < 2 * len(flood) + 4 * MIB


def test_a_large_answer_takes_its_own_size(play: Play, kind: str) -> None:
    """And less than twice of it, also while it comes."""
    size = 48 * MIB

    def flood(peer: Peer, stream: int) -> None:
        peer.send(peer.headers(stream, status="200"))
        peer.send(frames.frame(frames.DATA, 0, stream, struct.pack(">BL", 0, size)))
        piece = frames.frame(frames.DATA, 0, stream, bytes(MIB))
        for _ in range(size // MIB):
            peer.send(piece)
        peer.send(peer.headers(stream, ends=True, grpc_status="0"))

    output, grown = measured(play(first_answered(flood)), kind)
    assert output == str(size)
    assert grown < 1.5 * size


def test_a_refused_length_is_seen_before_the_message(connect: Connect, play: Play) -> None:
    """The error comes with the first five bytes, the stream is reset, and the next call goes on."""
    resets: list[tuple[int, bytes]] = []
    reset = threading.Event()

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        stream = peer.request()
        start = struct.pack(">BL", 0, ANSWER_BYTES + 1)
        peer.send(peer.headers(stream, status="200") + frames.frame(frames.DATA, 0, stream, start))
        _, stream, payload = peer.until(frames.RST_STREAM)
        resets.append((stream, payload))
        reset.set()
        while True:
            peer.send(peer.answer(peer.request()))

    transport = connect(play(script))
    with pytest.raises(InferenceError, match=f"an answer of {ANSWER_BYTES + 1} bytes") as caught:
        transport.send("ModelInfer", [b"x"], 20.0)
    assert caught.value.wanted == f"at most {ANSWER_BYTES} bytes"
    assert "max_response_bytes" in caught.value.todo
    assert reset.wait(10)
    assert resets == [(1, struct.pack(">L", frames.CANCEL))]
    assert bytes(transport.send("ModelInfer", [b"x"], 20.0)) == b""


def test_a_message_of_a_stream_that_is_too_large(connect: Connect, play: Play) -> None:
    """Messages before it are read, and it ends the stream."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        _, stream, _ = peer.until(frames.DATA)
        data = prefixed(b"first") + struct.pack(">BL", 0, 1001) + b"x" * 50
        peer.send(peer.headers(stream, status="200") + frames.frame(frames.DATA, 0, stream, data))
        peer.until(frames.RST_STREAM)

    transport = connect(play(script), limit=AnswerLimit(1000))
    stream = transport.stream()
    stream.write([b"x"])
    assert bytes(stream.read(20.0)) == b"first"
    for _ in range(2):
        with pytest.raises(InferenceError, match="an answer of 1001 bytes"):
            stream.read(20.0)


def test_questions_are_answered_in_less(connect: Connect, play: Play) -> None:
    """Reports of a server about itself are not as large as a tensor may be."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        stream = peer.request()
        start = struct.pack(">BL", 0, ADMIN_BYTES + 1)
        peer.send(peer.headers(stream, status="200") + frames.frame(frames.DATA, 0, stream, start))
        peer.request()

    with pytest.raises(InferenceError, match=f"an answer of {ADMIN_BYTES + 1} bytes"):
        connect(play(script)).send("ModelMetadata", [b"\x0a\x01m"], 20.0)


def test_a_proxy_s_page_is_no_message(connect: Connect, play: Play) -> None:
    """Its status is told, whatever the page's first bytes would mean in gRPC."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        stream = peer.request()
        peer.send(
            peer.headers(stream, status="503", content_type="text/html")
            + frames.frame(frames.DATA, frames.END_STREAM, stream, b"<html>no healthy upstream")
        )
        peer.request()

    with pytest.raises(ServerUnavailable, match="the HTTP status 503"):
        connect(play(script)).send("ModelInfer", [b"x"], 20.0)


def models(metadata: bytes, config: bytes, answers: Callable[[], bytes]) -> Script:
    """A Triton of one model, by hand: its metadata, its configuration, then answers."""

    def script(peer: Peer, number: int) -> None:
        peer.greet()
        for message in itertools.chain([metadata, config], iter(answers, None)):
            stream, data = peer.request(), prefixed(message)
            peer.send(peer.headers(stream, status="200"))
            for at in range(0, len(data), MIB):
                peer.send(frames.frame(frames.DATA, 0, stream, data[at : at + MIB]))
            peer.send(peer.headers(stream, ends=True, grpc_status="0"))

    return script


def a_model(size: int) -> tuple[bytes, bytes]:
    """Metadata and configuration of a model that makes this many bytes of one."""
    config = model_config_pb2.ModelConfig(name="m")
    config.input.add(name="x", data_type=model_config_pb2.TYPE_UINT8, dims=[1])
    config.output.add(name="y", data_type=model_config_pb2.TYPE_UINT8, dims=[size])
    return (
        service_pb2.ModelMetadataResponse(name="m", versions=["1"]).SerializeToString(),
        service_pb2.ModelConfigResponse(config=config).SerializeToString(),
    )


def an_answer(size: int) -> bytes:
    """The answer of `a_model` with this many bytes."""
    answer = service_pb2.ModelInferResponse(model_name="m", model_version="1")
    answer.outputs.add(name="y", datatype="UINT8", shape=[size])
    answer.raw_output_contents.append(bytes(size))
    return answer.SerializeToString()


def test_the_client_s_own_limit(play: Play) -> None:
    """`max_response_bytes` bounds every answer, and the error names the model, sizes and the setting."""
    address = play(models(*a_model(2000), lambda: an_answer(2000)))
    with Client(address, max_response_bytes=1000) as client, pytest.raises(InferenceError) as caught:
        client.model("m").predict(x=[0])
    assert caught.value.where == f"model m at {address}"
    assert caught.value.wanted == "at most 1000 bytes"
    assert "max_response_bytes" in caught.value.todo


def test_a_model_with_large_outputs_needs_no_setting(play: Play) -> None:
    """The size that its configuration declares is allowed several times over."""
    size = ANSWER_BYTES + MIB
    address = play(models(*a_model(size), lambda: an_answer(size)))
    with Client(address) as client:
        reply = client.model("m").predict(x=[0])
        assert reply["y"].nbytes == size


@pytest.mark.parametrize(
    ("metadata", "config"),
    [
        (b"\x2a\x00" * 500_000, b""),
        (b"\x2a\x02\x0a\x00" * 500_000, b""),
        (b"", b"\x0a\x80\x89\x7a" + b"\x32\x00" * 1_000_000),
        (b"", b"\x0a\x82\x89\x7a" + b"\x7b\x7c" + b"\x32\x00" * 1_000_000),
    ],
)
def test_a_million_outputs(play: Play, metadata: bytes, config: bytes) -> None:
    """A model's description of small fields without end is refused, whole or inside the configuration."""
    address = play(models(metadata, config, bytes))
    with Client(address) as client, pytest.raises(InferenceError, match="more than 100000 fields"):
        client.model("m")


def made(limit: AnswerLimit | None = None) -> Connection:
    """A connection whose peer has said hello, with nothing left to send."""
    connection = Connection(RequestHeaders("h:1", False), limit)
    connection.receive(frames.settings({}))
    connection.writer.out = []
    return connection


def test_header_lists_are_bounded_and_the_peer_is_told() -> None:
    """A few bytes that stand for many fields end the connection; the limit is in our SETTINGS."""
    hello = b"".join(Connection(RequestHeaders("h:1", False)).writer.out)
    assert struct.pack(">HL", frames.MAX_HEADER_LIST_SIZE, LARGEST_LIST) in hello
    connection = made()
    call = connection.open("ModelInfer", [b"x"], 1, 5.0)
    name = b"\x40\x01a\x7f\x81\x1e" + b"v" * 4000  # a field of 4 KB, put into the table
    block = name[:3] + b"\x7f\xa1\x1e" + b"v" * 4000 + b"\xbe" * 1000
    assert call in connection.receive(frames.frame(frames.HEADERS, 4, 1, block))
    assert f"header fields of more than {LARGEST_LIST} bytes" in call.lost


def test_empty_continuations_without_end() -> None:
    """They carry no bytes to count, so frames are counted."""
    connection = made()
    call = connection.open("ModelInfer", [b"x"], 1, 5.0)
    connection.receive(frames.frame(frames.HEADERS, 0, 1, b""))
    for _ in range(100):
        connection.receive(frames.frame(frames.CONTINUATION, 0, 1, b""))
    assert "header fields without end" in call.lost


def test_questions_of_a_peer_that_reads_nothing() -> None:
    """Answers wait for it up to a number, also if it asks slowly."""
    connection = made()
    call = connection.open("ModelInfer", [b"x"], 1, 5.0)
    connection.writer.blocked = True
    for _ in range(30):
        connection.receive(frames.frame(frames.PING, 0, 0, bytes(8)) * 50)
        connection.writer.out = []  # handed to a socket that takes no more
    assert "does not read the answers" in call.lost


def test_pings_of_a_peer_whose_socket_is_full(connect: Connect, play: Play) -> None:
    """It asks, a little at a time, and takes neither the request nor the answers."""
    over = threading.Event()

    def script(peer: Peer, number: int) -> None:
        peer.greet({4: 2**31 - 1})
        peer.send(frames.window_update(0, 2**30))
        peer.until(frames.HEADERS)
        time.sleep(0.2)
        for _ in range(60):
            peer.send(frames.frame(frames.PING, 0, 0, bytes(8)) * 50)
            time.sleep(0.005)
        over.wait(10)

    transport = connect(play(script))
    piece = memoryview(bytes(MIB))
    with pytest.raises(ServerUnavailable, match="does not read the answers"):
        transport.send("ModelInfer", [piece] * 64, 8.0)
    over.set()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("pieces", [1, 3, 7, 10_000])
def test_messages_in_any_pieces(streaming: bool, pieces: int) -> None:
    """Read in order and whole, however many are kept and however they were cut."""
    messages = [bytes([n % 256]) * (n * n % 3000) for n in range(60 if streaming else 1, 0, -1)]
    call = Call(1, 0, streaming)
    data = memoryview(b"".join(map(prefixed, messages)))
    received = []
    for at in range(0, len(data), pieces):
        call.receive(data[at : at + pieces])
        if streaming and at % 2:
            received += [call.read()]
    assert not call.partial
    if not streaming:
        assert call.answer == messages[0]
        with pytest.raises(BadMessage, match="more than one message"):
            call.receive(memoryview(b"\0"))
        return
    received += iter(call.read, None)
    assert [bytes(message) for message in received if message is not None] == messages
    assert call.unread == 0
