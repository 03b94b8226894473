"""Callers of a real Envoy that never read what it answers, and those that only sit there: others are answered."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from hpack import Encoder

from tests.native.guarded import HEADERS, PREFACE, SETTINGS, frame
from tests.operate.gateway.conftest import Gateway, StartGateway
from tests.waiting import eventually

pytestmark = pytest.mark.needs("envoy")

MEMORY_MIB, BESIDE_MIB = 256, 96
"""The gateway's limit, and memory of its process outside the heap, such as code and stacks."""
CONNECTIONS, STREAMS, MOST = 80, 256, 96
INITIAL_WINDOW = b"\x00\x04\x00\x00\x00\x00"
"""A setting: no byte of an answer may be sent."""
FLOODS = {
    "DATA": frame(0, 0, 1),
    "PRIORITY": frame(2, 0, 1, bytes(5)),
    "RST_STREAM": frame(3, 0, 1, bytes(4)),
    "SETTINGS": frame(SETTINGS, 0, 0),
    "PING": frame(6, 0, 0, bytes(8)),
    "WINDOW_UPDATE": frame(8, 0, 1, b"\0\0\0\1"),
    "CONTINUATION": frame(9, 0, 1),
}


@pytest.fixture(scope="module")
def gateway(start_gateway: StartGateway) -> Gateway:
    """One with little memory, before no replica, and with a key."""
    made = start_gateway(f"limits: {{memory_mib: {MEMORY_MIB}, request_mib: 16, connections: {MOST}}}\n")
    made.add_key("all")
    made.reload()
    assert answer(made) == 503
    return made


def answer(gateway: Gateway, body: bytes | None = None) -> int:
    """Status for the key's holder: 503 of the router, which found no replica; 0 without an answer."""
    with contextlib.suppress(OSError):
        status, text = gateway.get("/v2", {"x-api-key": gateway.keys["all"]}, body)
        return 0 if "overload" in text else status
    return 0


def connect(gateway: Gateway, protocol: str) -> ssl.SSLSocket:
    """A connection with TLS."""
    context = ssl.create_default_context(cafile=str(gateway.places.folder / "tls" / "ca.crt"))
    context.set_alpn_protocols([protocol])
    plain = socket.create_connection(("127.0.0.1", gateway.places.port), 30)
    return context.wrap_socket(plain, server_hostname="localhost")


def resident_mib(gateway: Gateway) -> int:
    """Memory of the gateway's process."""
    pages = int(Path(f"/proc/{gateway.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def requests(gateway: Gateway) -> int:
    """Number of requests it has taken since its start."""
    name = 'envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="gateway"}'
    line = next(line for line in gateway.metrics().splitlines() if line.startswith(name))
    return int(line.split()[-1])


def request(*headers: tuple[str, str]) -> bytes:
    """The headers of a request over HTTP/2."""
    pseudo = ((":method", "GET"), (":scheme", "https"), (":authority", "x"), (":path", "/v2"))
    block: bytes = Encoder().encode([*pseudo, *headers])
    return block


@contextlib.contextmanager
def unread(gateway: Gateway, *headers: tuple[str, str]) -> Iterator[None]:
    """Many requests whose answers are held back by a window of nothing, on connections that stay."""
    sent = request(*headers)
    many = b"".join(frame(HEADERS, 5, 1 + 2 * k, sent) for k in range(STREAMS))
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(connect(gateway, "h2"))
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0, INITIAL_WINDOW) + many)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("with_key", [False, True], ids=["stranger", "key"])
def test_answers_that_nobody_reads(gateway: Gateway, with_key: bool) -> None:
    """They take no more than the gateway's limit, others are answered meanwhile, and the memory comes back."""
    before, begun = resident_mib(gateway), requests(gateway)
    with unread(gateway, *([("x-api-key", gateway.keys["all"])] if with_key else [])):
        while requests(gateway) - begun < CONNECTIONS * STREAMS:
            assert answer(gateway) == 503
            assert resident_mib(gateway) < MEMORY_MIB + BESIDE_MIB
        assert answer(gateway) == 503
    # The allocator looks at its limit when it makes room, as for a large request.
    eventually(
        lambda: answer(gateway, bytes(8 << 20)) and resident_mib(gateway) < before + MEMORY_MIB // 2,
        "memory that comes back",
    )


def test_connections_that_only_sit_there(gateway: Gateway) -> None:
    """Idle connections up to the limit are ended in time for others to get in."""
    with contextlib.ExitStack() as stack:
        for _ in range(MOST):
            with contextlib.suppress(OSError):
                stack.enter_context(connect(gateway, "http/1.1"))
        eventually(lambda: answer(gateway) == 503, "a place for another caller")


def test_floods_of_frames(gateway: Gateway) -> None:
    """Frames that cost their sender nothing: others are answered, and the memory stays as it is."""
    before = resident_mib(gateway)
    opened = frame(HEADERS, 4, 1, request(("x-api-key", gateway.keys["all"])))
    begin = PREFACE + frame(SETTINGS, 0, 0, INITIAL_WINDOW) + opened
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(gateway, "h2")) for _ in FLOODS]
        for connection, flood in zip(connections, FLOODS.values(), strict=True):
            with contextlib.suppress(OSError):
                connection.sendall(begin)
                for _ in range(100):
                    connection.sendall(flood * 500)
                connection.shutdown(socket.SHUT_WR)
            assert answer(gateway) == 503
        for connection in connections:
            with contextlib.suppress(OSError):
                while connection.recv(1 << 16):
                    pass
    assert answer(gateway) == 503
    assert resident_mib(gateway) < before + 32
