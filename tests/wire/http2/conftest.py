"""Both transports under one face, a real gRPC server, and a peer that can be made to misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import hpack
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tritonkit.wire.http2 import AsyncHttp2Transport, Http2Transport, frames


def body(name: str = "echo", data: bytes = b"", **fields: Any) -> list[bytes | memoryview]:
    """A request's message."""
    request = service_pb2.ModelInferRequest(model_name=name, **fields)
    request.raw_input_contents.append(data)
    return [request.SerializeToString()]


def data_of(answer: memoryview) -> bytes:
    """The bytes that an answer carries."""
    return bytes(service_pb2.ModelInferResponse.FromString(bytes(answer)).raw_output_contents[0])


class Answers(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """Ends a call with the status its model name spells; `echo` echoes, `slow` does so after `id` s."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, str]] = []
        self.left_s: list[float] = []
        self.cancelled = threading.Event()

    def ServerLive(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Says yes."""
        return service_pb2.ServerLiveResponse(live=True)

    def RepositoryIndex(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Notes the metadata."""
        self.metadata.append(dict(context.invocation_metadata()))
        return service_pb2.RepositoryIndexResponse()

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Echoes or fails."""
        self.metadata.append(dict(context.invocation_metadata()))
        self.left_s.append(context.time_remaining())
        if request.model_name == "slow":
            context.add_callback(self.cancelled.set)
            time.sleep(float(request.id))
        elif request.model_name != "echo":
            context.abort(getattr(grpc.StatusCode, request.model_name), "as asked: 50 % ü")
        answer = service_pb2.ModelInferResponse(model_name="echo", id=request.id)
        answer.raw_output_contents.extend(request.raw_input_contents)
        return answer

    def ModelStreamInfer(self, requests: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """Echoes each request as often as its id says; the model `fail` ends the stream."""
        context.add_callback(self.cancelled.set)
        for request in requests:
            if request.model_name == "fail":
                context.abort(grpc.StatusCode.INTERNAL, "as asked")
            for _ in range(int(request.id or 1)):
                answer = service_pb2.ModelInferResponse(model_name="echo")
                answer.raw_output_contents.extend(request.raw_input_contents)
                yield service_pb2.ModelStreamInferResponse(infer_response=answer)


@contextlib.contextmanager
def grpc_server(
    servicer: Answers, credentials: Any = None, port: int = 0
) -> Iterator[tuple[grpc.Server, int]]:
    """A real server, and its port."""
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(8), options=sizes)
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    address = f"127.0.0.1:{port}"
    add = server.add_insecure_port if credentials is None else server.add_secure_port
    port = add(*([address] if credentials is None else [address, credentials]))
    server.start()
    try:
        yield server, port
    finally:
        server.stop(grace=None).wait(5)


@pytest.fixture
def answers() -> Answers:
    """What the server does and has seen."""
    return Answers()


@pytest.fixture
def address(answers: Answers) -> Iterator[str]:
    """Of a real server."""
    with grpc_server(answers) as (_, port):
        yield f"127.0.0.1:{port}"


class Tasks:
    """An `AsyncHttp2Transport` with the face of the blocking one, for tests that are true of both."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.transport = AsyncHttp2Transport(*args, **kwargs)
        self.address = self.transport.address

    def do(self, work: Any) -> Any:
        """Run a coroutine in the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def send(self, *args: Any) -> memoryview:
        """See `Transport.send`."""
        answer: memoryview = self.do(self.transport.send(*args))
        return answer

    def stream(self, *args: Any) -> Any:
        """See `Transport.stream`."""
        return _TaskStream(self, self.do(self.transport.stream(*args)))

    def close(self) -> None:
        """End the loop too."""
        if self.thread.is_alive():
            self.do(self.transport.close())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.loop.close()


class _TaskStream:
    def __init__(self, tasks: Tasks, stream: Any) -> None:
        self._tasks, self._stream = tasks, stream

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._stream, name)
        return lambda *args, **kwargs: self._tasks.do(method(*args, **kwargs))


Connect = Callable[..., Any]


@pytest.fixture(params=[Http2Transport, Tasks], ids=["threads", "tasks"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make a transport, of threads or of tasks; it is closed at the end."""
    made: list[Any] = []

    def connecting(*args: Any, **kwargs: Any) -> Any:
        made.append(request.param(*args, **kwargs))
        return made[-1]

    yield connecting
    for transport in made:
        transport.close()


class Peer:
    """One accepted connection, spoken to in frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.kept = b""
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()

    def read(self, size: int) -> bytes:
        """Exactly so many bytes; `ConnectionError` at the end."""
        while len(self.kept) < size:
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError
            self.kept += data
        data, self.kept = self.kept[:size], self.kept[size:]
        return data

    def frame(self) -> tuple[int, int, int, bytes]:
        """The next frame: kind, flags, stream, payload."""
        high, low, kind, flags, stream = frames.HEAD.unpack(self.read(9))
        return kind, flags, stream, self.read(high << 16 | low)

    def until(self, kind: int) -> tuple[int, int, bytes]:
        """The next frame of a kind: flags, stream, payload."""
        while True:
            found, flags, stream, payload = self.frame()
            if found == kind:
                return flags, stream, payload

    def send(self, data: bytes) -> None:
        """Any bytes."""
        self.sock.sendall(data)

    def greet(self, settings: dict[int, int] | None = None) -> None:
        """Preface and SETTINGS, as every connection begins."""
        assert self.read(len(frames.PREFACE)) == frames.PREFACE
        self.send(frames.settings(settings or {}))

    def request(self) -> int:
        """Read until a request is whole; its stream."""
        while True:
            kind, flags, stream, _ = self.frame()
            if kind in (frames.DATA, frames.HEADERS) and flags & frames.END_STREAM:
                return stream

    def headers(self, stream: int, ends: bool = False, **fields: str) -> bytes:
        """A HEADERS frame; underscores in names become hyphens, `status` is HTTP's."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        if "status" in named:
            named = {":status": named.pop("status"), **named}
        block = self.encoder.encode(list(named.items()))
        flags = frames.END_HEADERS | (frames.END_STREAM if ends else 0)
        return frames.frame(frames.HEADERS, flags, stream, block)

    def answer(self, stream: int, message: bytes = b"", status: int = 0) -> bytes:
        """The frames of a whole answer."""
        return (
            self.headers(stream, status="200", content_type="application/grpc")
            + frames.frame(frames.DATA, 0, stream, prefixed(message))
            + self.headers(stream, ends=True, grpc_status=str(status))
        )


def prefixed(message: bytes, flag: int = 0) -> bytes:
    """A message as gRPC sends it."""
    return struct.pack(">BL", flag, len(message)) + message


Script = Callable[[Peer, int], None]


@pytest.fixture
def play() -> Iterator[Callable[[Script], str]]:
    """Start a peer that runs a script for each connection, numbered from 0; gives its address."""
    sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []
    over = threading.Event()

    def serve(sock: socket.socket, number: int, script: Script) -> None:
        with sock, contextlib.suppress(OSError):  # also ConnectionError: the end
            script(Peer(sock), number)

    def accept(listener: socket.socket, script: Script) -> None:
        number = 0
        while not over.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.settimeout(10)
            sockets.append(sock)
            threads.append(threading.Thread(target=serve, args=(sock, number, script)))
            threads[-1].start()
            number += 1

    def playing(script: Script) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        sockets.append(listener)
        threads.append(threading.Thread(target=accept, args=(listener, script)))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield playing
    over.set()
    for sock in sockets:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()
    for thread in threads:
        thread.join(15)
