"""Answers that their callers leave unread, against a real tritonserver under the guard."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hpack import Encoder
from tritonclient.grpc import service_pb2

from tests.native.guarded import DATA, END_STREAM, HEADERS, PREFACE, SETTINGS, WINDOW_UPDATE, frame, message
from tests.server.guard.guarded import Guarded, start_guarded
from tests.server.models import ModelText
from tests.waiting import PATIENCE_S, eventually

MIB = 1 << 20
LIMIT_MIB = 32
"""Memory that the guard lets unread answers take."""
MOST_MIB = 600
"""Growth before the guard acts, on a machine that is busy; the endless stream would bring 1,000."""
SLOWLY, READ_MIB = 130, 15
"""Concurrent answers of a MiB, between four and eight times the limit; and the bytes that are read slowly."""

CONFIG = """backend: "python"
max_batch_size: 0
input { name: "x" data_type: TYPE_UINT8 dims: [-1] }
output { name: "y" data_type: TYPE_UINT8 dims: [-1] }
"""
LARGE = """import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # A MiB of zeros for a byte.
    def execute(self, requests):
        y = pb_utils.Tensor("y", np.zeros(1 << 20, np.uint8))
        return [pb_utils.InferenceResponse([y]) for _ in requests]
"""
ENDLESS = """import threading
import time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # 64 KiB every ms until the caller has gone, a GiB at most.
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.send, args=[request.get_response_sender()]).start()

    def send(self, sender):
        y = pb_utils.Tensor("y", np.zeros(1 << 16, np.uint8))
        for _ in range(16_000):
            if sender.is_cancelled():
                break
            sender.send(pb_utils.InferenceResponse([y]))
            time.sleep(0.001)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
MODELS = {
    "large": ModelText(CONFIG, LARGE),
    "endless": ModelText(CONFIG + "model_transaction_policy { decoupled: true }\n", ENDLESS),
}


@contextlib.contextmanager
def started(project: Path, folder: Path) -> Iterator[Guarded]:
    """A server whose guard lets unread answers take little."""
    limit = {"TRITONKIT_GUARD_UNREAD_MIB": str(LIMIT_MIB)}
    prefix = f"unread_test_{os.getpid()}_{folder.name}_"
    with start_guarded(project, folder, MODELS, MIB, prefix, limit) as running:
        yield running


@pytest.fixture(scope="module")
def server(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A guarded server with these models."""
    with started(project, tmp_path_factory.mktemp("unread")) as running:
        yield running


def request(model: str) -> bytes:
    """A request as gRPC sends it."""
    made = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[b"\1"])
    made.inputs.add(name="x", datatype="UINT8").shape.append(1)
    body = made.SerializeToString()
    return message(len(body), body)


@dataclass
class Hoarder:
    """A connection that asks and never reads.

    Args:
        window: of each answer; the connection's is as large as it can be if this is above 0.
    """

    port: int
    method: str
    window: int = 0
    encoder: Encoder = field(default_factory=Encoder)
    last: int = -1

    def __post_init__(self) -> None:
        self.peer = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        opened = frame(SETTINGS, 0, 0, b"\0\4" + self.window.to_bytes(4, "big"))
        if self.window:
            opened += frame(WINDOW_UPDATE, 0, 0, (self.window - 65535).to_bytes(4, "big"))
        self.peer.sendall(PREFACE + opened)

    def ask(self, count: int, body: bytes) -> None:
        """Open calls; the connection may be ended meanwhile."""
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "x"),
            ("te", "trailers"),
            (":path", f"/inference.GRPCInferenceService/{self.method}"),
            ("content-type", "application/grpc"),
        ]
        for _ in range(count):
            self.last += 2
            head = frame(HEADERS, 4, self.last, self.encoder.encode(fields))
            with contextlib.suppress(OSError):
                self.peer.sendall(head + frame(DATA, END_STREAM, self.last, body))

    def is_ended(self) -> bool:
        """Whether the server has ended it; nothing is read for that."""
        poll = select.poll()
        poll.register(self.peer, select.POLLRDHUP)
        return bool(poll.poll(0))


class Watch:
    """Keeps the highest memory of a server while it is entered, and calls it all the while."""

    def __init__(self, server: Guarded) -> None:
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.before = self.most = server.memory_mib("VmRSS")
        self.answers = 0
        self.failures: list[str] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        request: Any = service_pb2.ServerLiveRequest()
        while not self._stop.wait(0.02):
            self.most = max(self.most, self._server.memory_mib("VmRSS"))
            try:
                self.answers += self._server.service.ServerLive(request, timeout=PATIENCE_S).live
            except Exception as error:
                self.failures.append(repr(error))


@pytest.mark.parametrize(
    ("method", "model", "window", "connections", "calls"),
    [
        ("ServerMetadata", "", 0, 10, 1000),
        ("ModelInfer", "large", 0, 5, 60),
        ("ModelInfer", "large", 2**31 - 1, 3, 100),
        ("ModelStreamInfer", "endless", 0, 1, 1),
        ("ModelStreamInfer", "endless", 2**31 - 1, 1, 1),
    ],
)
def test_unread_answers_end_their_connections(
    server: Guarded, method: str, model: str, window: int, connections: int, calls: int
) -> None:
    """Small ones, large ones, a stream without an end; held back by a window, or by a socket that nobody reads. The
    memory has a bound and comes back, and another caller is answered."""
    body = request(model) if model else message(0)
    with Watch(server) as watch, contextlib.ExitStack() as stack:
        hoarders = [Hoarder(server.port, method, window) for _ in range(connections)]
        for hoarder in hoarders:
            stack.enter_context(hoarder.peer)
            hoarder.ask(calls, body)
        eventually(hoarders[0].is_ended, "the first connection is ended")
        eventually(lambda: server.memory_mib("VmRSS") < watch.before + 2 * LIMIT_MIB, "memory comes back")
    assert watch.most - watch.before < MOST_MIB
    assert not watch.failures
    assert watch.answers


def test_large_answers_over_a_slow_line(project: Path, tmp_path: Path) -> None:
    """Many together grow the server by several times the limit. Who reads them as fast as a line brings them gets them
    all. Its server has no memory left over from others' answers, which would count."""
    with started(project, tmp_path) as server:
        hoarder = Hoarder(server.port, "ModelInfer", 2**31 - 1)
        with hoarder.peer as peer:
            hoarder.ask(SLOWLY, request("large"))
            came = 0
            while came < SLOWLY * MIB:
                part = peer.recv(1 << 16)
                assert part, f"ended after {came >> 20} MiB"
                came += len(part)
                time.sleep(0.01 if came < READ_MIB * MIB else 0)
