"""Tensors in shared memory with a real Triton: right answers, and nothing left behind however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.models import ModelText, write_repository
from tests.waiting import PATIENCE_S
from tritonkit.client import AsyncClient, Client
from tritonkit.client.shm import SharedMemory
from tritonkit.client.shm.system import FOLDER
from tritonkit.client.wire.http2 import Http2Transport
from tritonkit.client.wire.messages import message, parse
from tritonkit.errors import DeadlineExceeded, InferenceError, ServerUnavailable
from tritonkit.serve import Endpoint, serve

WIDE = """max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: [1000] }
output { name: "y" data_type: TYPE_FP32 dims: [1000] }
"""
TEXT = """max_batch_size: 4
input { name: "x" data_type: TYPE_STRING dims: [-1] }
output { name: "y" data_type: TYPE_STRING dims: [-1] }
"""
COPY = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in given]
"""
ALWAYS = SharedMemory(smallest=1)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`wide` waits as many seconds as its first value says; `text` copies bytes."""
    return write_repository(
        tmp_path_factory.mktemp("shared") / "model_repository",
        {"wide": ModelText(f'backend: "python"\n{WIDE}'), "text": ModelText(f'backend: "python"\n{TEXT}', code=COPY)},
    )


@pytest.fixture(scope="module")
def server(repository: Path, project: Path) -> Iterator[Endpoint]:
    """Triton, serving both."""
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=project, shared_memory_api=True) as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a file of this package's clients in shared memory."""
    yield
    assert list(FOLDER.glob("tritonkit-client-*")) == []


def rows(*starts: float) -> Any:
    """`[len(starts), 1000]` float32: 0, then counting up from each start."""
    given = np.array([np.arange(start, start + 1000) for start in starts], np.float32)
    given[:, 0] = 0
    return given


def registered(server: Endpoint) -> set[str]:
    """The regions the server has open."""
    transport = Http2Transport(server.grpc, admin_key=server.admin_key)
    asked: Any = "SystemSharedMemoryStatus"
    try:
        return set(parse(asked, transport.send(asked, (message(asked),), 5.0)).regions)
    finally:
        transport.close()


def test_answers_are_the_same_and_the_server_forgets(server: Endpoint) -> None:
    """Both ways give the same arrays; after closing, Triton has no region and they stay readable."""
    with Client(server.grpc) as plain, Client(server.grpc, admin_key=server.admin_key, shared_memory=ALWAYS) as client:
        for given in (rows(1), rows(2, 3), np.asfortranarray(rows(4, 5)), rows(6).astype(">f4")):
            reply = client.model("wide").predict(x=given)
            np.testing.assert_array_equal(reply["y"], plain.model("wide").predict(x=given)["y"])
        texts = [[b"one", b"", b"drei" * 1000]]
        assert client.model("text").predict(x=texts)["y"].tolist() == texts
        assert registered(server)
    assert registered(server) == set()
    assert reply["y"][0, 5] == 11


def test_a_call_given_up_harms_no_other(server: Endpoint) -> None:
    """The model writes its answer long after the caller left, and into nobody's arrays."""
    with Client(server.grpc, admin_key=server.admin_key, shared_memory=ALWAYS, retry=None) as client:
        wide = client.model("wide")
        wide.predict(x=rows(1))
        slow = rows(1000)
        slow[0, 0] = 1.0
        with pytest.raises(DeadlineExceeded):
            wide.predict(x=slow, timeout_s=0.2)
        held = [wide.predict(x=rows(number))["y"] for number in range(2, 6)]
        time.sleep(1.1)
        for number, answer in enumerate(held, 2):
            assert answer[0, 1] == number + 1
    assert registered(server) == set()


def test_a_refused_call_is_the_servers_error(server: Endpoint) -> None:
    """A model's own error comes as one, and the region serves the next call."""
    with Client(server.grpc, admin_key=server.admin_key, shared_memory=ALWAYS) as client:
        wide = client.model("wide")
        broken = rows(1)
        broken[0, 0] = np.inf
        with pytest.raises(InferenceError, match="Overflow"):
            wide.predict(x=broken)
        assert wide.predict(x=rows(1))["y"][0, 5] == 6


def test_tasks_share_regions(server: Endpoint) -> None:
    """Tasks of one client get their own answers, and closing it makes Triton forget."""

    async def run() -> list[float]:
        async with AsyncClient(server.grpc, admin_key=server.admin_key, shared_memory=ALWAYS) as client:
            wide = await client.model("wide")
            calls = [wide.predict(x=rows(number)) for number in range(40)]
            return [float(reply["y"][0, 1]) for reply in await asyncio.gather(*calls)]

    assert asyncio.run(run()) == [number + 1.0 for number in range(40)]
    assert registered(server) == set()


KILLED = """import sys, time
import numpy as np
from tritonkit.client import Client
from tritonkit.client.shm import SharedMemory
client = Client(sys.argv[1], admin_key=sys.argv[2], shared_memory=SharedMemory(smallest=1))
client.model("wide").predict(x=np.zeros((1, 1000), np.float32))
print("ready", flush=True)
time.sleep(60)
"""


def test_a_killed_client_leaves_nothing(server: Endpoint) -> None:
    """`kill -9` leaves no file; the next client on the machine lets Triton forget its regions."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, server.grpc, server.admin_key], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        orphans = registered(server)
        process.kill()
    assert orphans
    with Client(server.grpc, admin_key=server.admin_key, shared_memory=ALWAYS) as client:
        for _ in range(3):
            client.model("wide").predict(x=rows(1))
        assert not orphans & registered(server)


def test_a_restarted_server_gets_new_regions(repository: Path, project: Path) -> None:
    """A call after Triton died and was started again succeeds; answers from before stay right."""
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=project, shared_memory_api=True) as endpoint:
        client = Client(endpoint.grpc, admin_key=endpoint.admin_key, shared_memory=ALWAYS)
        held = client.model("wide").predict(x=rows(7))["y"]
        os.kill(endpoint.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with suppress(ServerUnavailable, InferenceError):
                answer = client.model("wide").predict(x=rows(8), timeout_s=30)["y"]
                break
            assert time.monotonic() < deadline
        assert answer[0, 1] == 9
        assert held[0, 1] == 8
        client.close()
        assert registered(endpoint) == set()


@pytest.mark.parametrize("key", ["", "the run's"])
def test_shared_memory_is_off_unless_it_was_asked_for(repository: Path, project: Path, key: str) -> None:
    """A server by default registers nobody's memory, with its key or without: the client says what to do
    once, and its calls are answered all the same."""
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=project) as endpoint:
        given = endpoint.admin_key if key else None
        with Client(endpoint.grpc, admin_key=given, shared_memory=ALWAYS) as client:
            assert client.model("wide").predict(x=rows(1))["y"][0, 5] == 6
        with pytest.raises(InferenceError, match="restricted"):
            registered(endpoint)
