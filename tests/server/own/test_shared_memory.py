"""Tensors in shared memory with a real Triton: right answers, and nothing left behind however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.server.models import ModelText, write_repository
from tests.waiting import PATIENCE_S, eventually, standstill
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
HELD = 1.0
WAITS = f"""import os
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    # y is x; the first value is how many seconds to take, or {HELD}: until the gate is there.
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            if x[0, 0] != {HELD}:
                time.sleep(float(x[0, 0]))
            while x[0, 0] == {HELD} and not os.path.exists("GATE"):
                time.sleep(0.01)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]))
        return answers
"""
ALWAYS = SharedMemory(smallest=1)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that lets a held request go on."""
    return tmp_path_factory.mktemp("gate") / "gate"


@pytest.fixture(scope="module")
def repository(gate: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`wide` waits as many seconds as its first value says, or for the gate, and runs twice at a time; `text` copies
    bytes."""
    two = "instance_group { count: 2 kind: KIND_CPU }\n"
    return write_repository(
        tmp_path_factory.mktemp("shared") / "model_repository",
        {
            "wide": ModelText(f'backend: "python"\n{WIDE}{two}', WAITS.replace("GATE", str(gate))),
            "text": ModelText(f'backend: "python"\n{TEXT}', COPY),
        },
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
    values = np.array([np.arange(start, start + 1000) for start in starts], np.float32)
    values[:, 0] = 0
    return values


def registered(server: Endpoint) -> set[str]:
    """The regions the server has open."""
    transport = Http2Transport(server.grpc, admin_key=server.admin_key)
    method: Any = "SystemSharedMemoryStatus"
    try:
        return set(parse(method, transport.send(method, (message(method),), PATIENCE_S)).regions)
    finally:
        transport.close()


def test_answers_are_the_same_and_the_server_forgets(server: Endpoint) -> None:
    """Both ways give the same arrays; after closing, Triton has no region and they stay readable."""
    with Client(server.grpc) as plain, Client(server.grpc, admin_key=server.admin_key, shared_memory=ALWAYS) as client:
        for values in (rows(1), rows(2, 3), np.asfortranarray(rows(4, 5)), rows(6).astype(">f4")):
            reply = client.model("wide").predict(x=values)
            np.testing.assert_array_equal(reply["y"], plain.model("wide").predict(x=values)["y"])
        texts = [[b"one", b"", b"drei" * 1000]]
        assert client.model("text").predict(x=texts)["y"].tolist() == texts
        assert registered(server)
    assert registered(server) == set()
    assert reply["y"][0, 5] == 11


def runs(client: Client) -> int:
    """The runs of `wide` so far."""
    return client.statistics("wide")[0].execution_count


def test_a_call_given_up_harms_no_other(server: Endpoint, gate: Path) -> None:
    """The model writes its answer long after the caller left, and into nobody's arrays."""
    with Client(server.grpc, admin_key=server.admin_key, shared_memory=ALWAYS, retry=None) as client:
        wide = client.model("wide")
        wide.predict(x=rows(1))
        before = standstill(lambda: runs(client))
        slow = rows(1000)
        slow[0, 0] = HELD
        with pytest.raises(DeadlineExceeded):
            wide.predict(x=slow, timeout_s=0.2)
        held = [wide.predict(x=rows(number))["y"] for number in range(2, 6)]
        gate.touch()
        # That of the call given up is among them.
        eventually(lambda: runs(client) == before + 5, "all runs over")
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


@pytest.mark.slow
def test_a_restarted_server_gets_new_regions(repository: Path, project: Path) -> None:
    """A call after Triton died and was started again succeeds; answers from before stay right."""
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=project, shared_memory_api=True) as endpoint:
        client = Client(endpoint.grpc, admin_key=endpoint.admin_key, shared_memory=ALWAYS)
        held = client.model("wide").predict(x=rows(7))["y"]
        os.kill(endpoint.pid, signal.SIGKILL)

        def again() -> Any:
            with suppress(ServerUnavailable, InferenceError):
                return client.model("wide").predict(x=rows(8), timeout_s=PATIENCE_S)
            return None

        assert eventually(again, "an answer of the new server")["y"][0, 1] == 9
        assert held[0, 1] == 8
        client.close()
        assert registered(endpoint) == set()


@pytest.mark.parametrize("key", ["", "the run's"])
def test_shared_memory_is_off_unless_it_was_asked_for(repository: Path, project: Path, key: str) -> None:
    """A server by default registers nobody's memory, with its key or without: the client says what to do
    once, and its calls are answered all the same."""
    with serve(repository, grpc_port=0, http_port=0, metrics_port=0, root=project) as endpoint:
        admin_key = endpoint.admin_key if key else None
        with Client(endpoint.grpc, admin_key=admin_key, shared_memory=ALWAYS) as client:
            assert client.model("wide").predict(x=rows(1))["y"][0, 5] == 6
        with pytest.raises(InferenceError, match="restricted"):
            registered(endpoint)
