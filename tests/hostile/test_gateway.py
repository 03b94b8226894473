"""Strangers at the gateway of a real stack: who comes slowly, in numbers or with nonsense keeps nobody else out."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import PROJECT
from tests.hostile import grpc_requests, http_requests
from tests.hostile.conftest import COPY, EVERY_KIND, WIDE
from tests.hostile.test_campaign import CALLERS, REQUESTS, WARM_UP, Memory, storm
from tests.hostile.test_closed import resident
from tests.ports import free_port
from tests.server.models import ModelText, write_repository
from tritonkit.client import TLS, Client
from tritonkit.operate.certificates import make_certificates
from tritonkit.operate.keys import add_key
from tritonkit.operate.stack import Stack, StackSettings

pytestmark = [pytest.mark.needs("envoy"), pytest.mark.slow, pytest.mark.timeout(900)]

SPEC = "limits: {header_s: 3, request_mib: 16}\n"
IDLE = 2000
GATEWAY_MAY_GROW = 96 << 20
"""Buffers of many concurrent connections, which its allocator keeps."""


QUIET = ModelText(
    WIDE,
    COPY.replace("        given =", "        time.sleep(6)\n        given =").replace(
        "import ", "import time\nimport ", 1
    ),
)
"""Each run is longer than several pings of the gateway."""


class Door:
    """A stack of one replica, and a key for it."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "deploy" / "gateway"
        make_certificates(self.folder / "tls", ["localhost", "127.0.0.1"])
        (self.folder / "gateway.yaml").write_text(f"port: {free_port()}\n{SPEC}")
        _, self.key = add_key(self.folder / "keys.json", "hostile")
        self.events: list[str] = []
        settings = StackSettings(
            root,
            root / "model_repository",
            replicas=1,
            gateway=self.folder,
            prometheus=False,
            redis=False,
            on_event=lambda event: self.events.append(f"{event.part}: {event.message}"),
        )
        self.stack = Stack(settings).__enter__()
        self._watcher = threading.Thread(target=self.stack.watch)
        self._watcher.start()
        self.context = ssl.create_default_context(cafile=str(self.folder / "tls" / "ca.crt"))
        self.pids = {part.name: part.pid for part in self.stack.parts}

    def stop(self) -> None:
        """End it."""
        self.stack.ending.set()
        self._watcher.join()
        self.stack.stop()

    def connect(self) -> ssl.SSLSocket:
        """A connection with TLS."""
        host, _, port = self.stack.address.rpartition(":")
        plain = socket.create_connection((host, int(port)), 60)
        return self.context.wrap_socket(plain, server_hostname=host)

    def serves(self) -> None:
        """Right answers, from the processes that there were at first."""
        tls = TLS(ca=str(self.folder / "tls" / "ca.crt"))
        with Client(f"grpcs://{self.stack.address}", tls=tls, api_key=self.key) as client:
            values = np.arange(5, dtype=np.float32)[None]
            for _ in range(20):
                np.testing.assert_array_equal(client.model("wide").predict(x=values)["y"], values)
        assert {part.name: part.pid for part in self.stack.parts} == self.pids, self.events


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Models of every kind behind a gateway."""
    root = tmp_path_factory.mktemp("door")
    (root / ".venv-server").symlink_to(PROJECT / ".venv-server")
    write_repository(root / "model_repository", EVERY_KIND | {"quiet": QUIET})
    made = Door(root)
    yield made
    made.stop()


def test_a_long_call_with_no_other_next_to_it(door: Door) -> None:
    """The gateway's pings meanwhile are no reason for Triton to end the connection."""
    tls = TLS(ca=str(door.folder / "tls" / "ca.crt"))
    with Client(f"grpcs://{door.stack.address}", tls=tls, api_key=door.key) as client:
        values = np.arange(5, dtype=np.float32)[None]
        np.testing.assert_array_equal(client.model("quiet").predict(x=values)["y"], values)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for thousands of connections in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8 * IDLE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_headers_that_come_slowly(door: Door) -> None:
    """Callers that send a byte now and then are ended in time, and others are served meanwhile."""
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(door.connect()) for _ in range(100)]
        for connection in slow:
            connection.sendall(b"GET /v2 HT")
        door.serves()
        for connection in slow:
            with contextlib.suppress(OSError):
                connection.sendall(b"T")
        for connection in slow:
            answer = b""
            # Not a timeout: the gateway ends it.
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while piece := connection.recv(1000):
                    answer += piece
            assert b"200" not in answer.partition(b"\r\n")[0]
    door.serves()


@pytest.mark.usefixtures("many_files")
def test_connections_that_say_nothing(door: Door) -> None:
    """Two thousand of them, with TLS: others are served, and their memory is given back or kept within bounds."""
    before = resident(door.pids["gateway"])
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(door.connect())
        door.serves()
    door.serves()
    assert resident(door.pids["gateway"]) - before < GATEWAY_MAY_GROW + IDLE * (64 << 10)


def test_a_caller_that_never_reads(door: Door) -> None:
    """Its answers fill what is bounded, and no more: others are served."""
    values = np.zeros((1, 250_000), np.float32)
    tls = TLS(ca=str(door.folder / "tls" / "ca.crt"))
    with Client(f"grpcs://{door.stack.address}", tls=tls, api_key=door.key) as client:
        assert client.model("wide").predict(x=values)["y"].size == values.size
    before = resident(door.pids["gateway"])
    head = (
        f"POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\nx-api-key: {door.key}\r\nContent-Type: "
        "application/octet-stream\r\nInference-Header-Content-Length: {length}\r\nContent-Length: {whole}\r\n\r\n"
    )
    json = (
        b'{"inputs":[{"name":"x","shape":[1,250000],"datatype":"FP32","parameters":{"binary_data_size":1000000}}],'
        b'"parameters":{"binary_data_output":true}}'
    )
    body = json + values.tobytes()
    sent = head.format(length=len(json), whole=len(body)).encode() + body
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(door.connect())
            connection.settimeout(2)
            with contextlib.suppress(TimeoutError, ssl.SSLError):
                for _ in range(5):
                    connection.sendall(sent)
        door.serves()
        assert resident(door.pids["gateway"]) - before < GATEWAY_MAY_GROW + 20 * (4 << 20)
    door.serves()


def test_nonsense_over_grpc(door: Door) -> None:
    """Mutated requests with a key: each has a typed answer, the processes are the same and have hardly grown."""
    authority = (door.folder / "tls" / "ca.crt").read_bytes()
    models = [name for name in EVERY_KIND if name != "cached"]
    callers = [
        grpc_requests.Sender(door.stack.address, models, authority=authority, key=door.key) for _ in range(CALLERS)
    ]
    storm(callers, WARM_UP, seed=10)
    memory = Memory(slack=16 << 20, **door.pids)
    statuses = storm(callers, REQUESTS, seed=11)
    for caller in callers:
        caller.close()
    print(f"{sum(statuses.values())} requests over gRPC: {dict(statuses)}")  # noqa: T201
    assert set(statuses) <= grpc_requests.STATUSES | {"PERMISSION_DENIED"}, statuses
    assert statuses["OK"]
    memory.has_hardly_grown()
    door.serves()


def test_nonsense_over_rest(door: Door) -> None:
    """The same over REST, through TLS and key."""
    callers = [http_requests.Sender(door.stack.address, context=door.context, key=door.key) for _ in range(CALLERS)]
    storm(callers, WARM_UP, seed=12)
    memory = Memory(slack=16 << 20, **door.pids)
    statuses = storm(callers, REQUESTS, seed=13)
    for caller in callers:
        caller.close()
    print(f"{sum(statuses.values())} requests over REST: {dict(statuses)}")  # noqa: T201
    assert set(statuses) <= http_requests.TYPED | {"401"}, statuses
    assert statuses["200"]
    memory.has_hardly_grown()
    door.serves()


def test_nonsense_instead_of_tls(door: Door) -> None:
    """Bytes of any kind at the port: the connection ends, and nothing else."""
    random = np.random.default_rng(0)
    host, _, port = door.stack.address.rpartition(":")
    for length in (1, 5, 100, 5000):
        for _ in range(25):
            with socket.create_connection((host, int(port)), 60) as connection, contextlib.suppress(OSError):
                connection.sendall(random.bytes(length))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1000):
                    pass
    door.serves()
