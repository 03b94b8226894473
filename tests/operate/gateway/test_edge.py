"""Headers by which callers could steer Envoy, and requests that are not plain, at a real gateway before a replica."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest

from tests.operate.gateway.conftest import Gateway, StartGateway
from tests.waiting import PATIENCE_S, eventually
from tritonkit.operate.gateway import Upstream
from tritonkit.operate.gateway.logs import STRANGERS_LOG
from tritonkit.serve.ports import check_free

pytestmark = pytest.mark.needs("envoy")

STEERING = {
    "x-envoy-max-retries": "50",
    "x-envoy-retry-on": "retriable-status-codes,5xx",
    "x-envoy-retriable-status-codes": "409",
    "x-envoy-upstream-alt-stat-name": "made.up",
    "x-envoy-upstream-rq-timeout-ms": "1",
    "x-envoy-original-path": "/forged",
    "x-envoy-hedge-on-per-try-timeout": "true",
    "x-envoy-internal": "true",
    "x-forwarded-for": "10.0.0.1",
    "x-forwarded-host": "elsewhere",
    "x-forwarded-client-cert": "Subject=me",
    "x-request-id": "mine",
    "admin-key": "k",
    "triton-grpc-protocol-admin-key": "k",
    "x-client-trace-id": "t",
    "forwarded": "for=10.0.0.1",
}
"""Headers that Envoy or Triton obeys. 409 is what the replica answers."""
LONGEST = 1024
"""Bytes of a stranger's line."""


class Seen(ThreadingHTTPServer):
    """A replica over REST: it is healthy, answers all else with 409, and keeps the headers that came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.headers: list[http.client.HTTPMessage] = []


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Seen

    def do_GET(self) -> None:
        """Whatever is asked."""
        healthy = self.path == "/v2/health/ready"
        if not healthy:
            self.server.headers.append(self.headers)
        self.send_response(200 if healthy else 409)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture(scope="module")
def replica() -> Iterator[Seen]:
    """One that is there."""
    with Seen() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def door(start_gateway: StartGateway, replica: Seen) -> Gateway:
    """A gateway before it, with a key and with its own metrics."""
    place = f"127.0.0.1:{replica.server_address[1]}"
    made = start_gateway(
        "limits: {header_s: 2}",
        replicas=(Upstream("seen", "127.0.0.1:1", place),),
        metrics=f"127.0.0.1:{check_free('127.0.0.1', 0)}",
    )
    made.add_key("all")
    made.reload()
    eventually(lambda: made.get("/v2", {"x-api-key": made.keys["all"]})[0] == 409, "the replica")
    return made


def test_no_header_steers_the_gateway(door: Gateway, replica: Seen) -> None:
    """No retries, no metric and no path of a caller's, on loopback either; nothing of it is passed on."""
    replica.headers.clear()
    path = "/v2/models/digits/versions/881"
    assert door.get(path, {"x-api-key": door.keys["all"]} | STEERING)[0] == 409
    (headers,) = replica.headers
    passed = {name.lower() for name in headers}
    assert passed & set(STEERING) <= {"x-request-id"}
    assert {"x-api-key", "authorization"}.isdisjoint(passed)
    (line,) = door.audit([path])
    assert line["attempts"] == 1
    assert line["request_id"] == headers["x-request-id"] != "mine"
    assert "made" not in door.metrics()


@pytest.mark.parametrize("path", ["long" + "a" * 9000, "slash%2F" + '"' * 9000, "part#" + "\\" * 9000])
def test_a_stranger_writes_little(door: Gateway, path: str) -> None:
    """One line for each request, cut, whatever its path and headers; in a log of strangers alone."""
    assert door.places.audit is not None
    logs = door.places.audit, door.places.audit.with_name(STRANGERS_LOG)
    headers = f"x-request-id: {'i' * 3000}", f"user-agent: {'u' * 3000}"
    assert door.send(f"GET /v2/{path} HTTP/1.1", *headers)[0] in (400, 401)

    def lines() -> list[list[str]]:
        return [[line for line in log.read_text().splitlines() if path[:4] in line] for log in logs]

    of_callers, (line,) = eventually(lambda: (pair := lines())[1] and pair, "a line")
    assert not of_callers
    assert len(json.loads(line)["path"]) == 256
    assert len(line) < LONGEST


def test_strangers_push_out_no_line_of_standard_output(start_gateway: StartGateway) -> None:
    """There their lines are few, and the rest is counted."""
    gateway = start_gateway("audit: stdout")
    key = gateway.add_key("all")
    gateway.reload()
    authority = (gateway.places.folder / "tls" / "ca.crt").read_bytes()
    with grpc.secure_channel(gateway.address, grpc.ssl_channel_credentials(authority)) as channel:
        calls = [channel.unary_unary("/flood").future(b"", timeout=60) for _ in range(2000)]
        assert {call.code() for call in calls} == {grpc.StatusCode.UNAUTHENTICATED}
    assert gateway.get("/v2/models/digits/versions/995", {"x-api-key": key})[0] == 503
    log = gateway.places.clusters.with_name("log")
    eventually(lambda: "/versions/995" in log.read_text(), "the caller's line")
    assert 500 <= log.read_text().count('"path":"/flood"') < 2000
    counted = re.search(r"process_ratelimit_denied\{\} ([0-9]+)", gateway.metrics())
    assert counted
    assert int(counted[1]) > 0


@pytest.mark.parametrize(
    ("start", "header", "status", "words"),
    [
        ("GET /v2/models/a%2Fb HTTP/1.1", "", 400, "an escaped slash"),
        ("GET /v2/models/a%5cb HTTP/1.1", "", 400, "an escaped slash"),
        ("GET /v2/models/a%00 HTTP/1.1", "", 400, "an escaped slash"),
        ("GET /v2/models/a#b HTTP/1.1", "", 400, "an escaped slash"),
        ("GET /v2 HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket", 403, "an upgrade"),
        ("CONNECT 127.0.0.1:22 HTTP/1.1", "", 403, "CONNECT"),
        ("CONNECT /v2 HTTP/1.1", "", 400, "malformed request"),
        ("NONSENSE /v2 HTTP/1.1", "", 400, "malformed request"),
        ("GET /v2 HTTP/1.1", "a_b: c", 400, "malformed request"),
        ("GET /v2 HTTP/1.1", "Content-Length: 1\r\nContent-Length: 2", 400, "malformed request"),
        ("GET /v2 HTTP/1.0", "", 426, "the version of HTTP"),
        ("GET /v2 HTTP/1.1", "\r\n".join(["a: b"] * 80), 431, "64 of 16 KiB at most"),
    ],
)
def test_a_request_that_is_not_plain_is_told_so(
    door: Gateway, start: str, header: str, status: int, words: str
) -> None:
    """No refusal is empty, with a key and without one."""
    for key in ("", f"x-api-key: {door.keys['all']}"):
        got, text = door.send(start, *filter(None, (header, key)))
        assert (got, words in text) == (status, True), text


def test_a_path_over_grpc_that_is_not_plain_is_told_so(door: Gateway) -> None:
    """The status is one of the caller's mistakes."""
    code, words = door.call("/inference.GRPCInferenceService/Model%2FInfer")
    assert code == "INVALID_ARGUMENT"
    assert words.startswith("the path: found an escaped slash")


def test_slow_connections_are_ended(door: Gateway) -> None:
    """A handshake that never begins or never ends, and headers that never end, over HTTP/1.1 and HTTP/2."""
    with contextlib.ExitStack() as stack:
        plain = [
            stack.enter_context(socket.create_connection(("127.0.0.1", door.places.port), PATIENCE_S)) for _ in range(2)
        ]
        plain[1].sendall(b"\x16\x03\x01\x02\x00\x01")
        first = stack.enter_context(door.connect())
        first.sendall(b"GET /v2 HTTP/1.1\r\nHost: ")
        second = stack.enter_context(door.connect("h2"))
        # HEADERS that another frame should continue: 0x82 is `:method: GET`.
        second.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        second.sendall(bytes((0, 0, 1, 1, 1, 0, 0, 0, 1, 0x82)))
        for connection in (*plain, first, second):
            connection.settimeout(PATIENCE_S)
        assert [connection.recv(100) for connection in plain] == [b"", b""]
        assert b"408" in first.recv(1000)
        received = b""
        while b"request header timeout" not in received:
            piece = second.recv(1000)
            assert piece, received
            received += piece


def test_the_metrics_take_no_orders(door: Gateway) -> None:
    """Neither a query, which Envoy's interface would obey, nor another path, nor headers."""
    assert door.places.metrics

    def get(path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(door.places.metrics, timeout=30)
        connection.request("GET", path, headers=STEERING)
        answer = connection.getresponse()
        read = answer.status, answer.read()
        connection.close()
        return read

    status, text = get("/metrics")
    assert (status, b"envoy_gateway_requests" in text, b"made" in text) == (200, True, False)
    assert b"made" not in get("/metrics")[1]
    for path in ("/metrics?usedonly", "/metrics/../quitquitquit", "/quitquitquit", "/stats"):
        assert get(path)[0] == 404, path
