"""The REST proxy: a real Envoy before a stand-in for Triton that keeps what reaches it."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import hpack
import pytest

from tests.hostile.rest_proxy import JSON, Answer, Proxy, Upstream, exchange, open_proxy, upstream_in
from tests.waiting import eventually, standstill
from tritonkit.serve.core.rest import RestLimits
from tritonkit.serve.core.supervisor import SHARED_MEMORY

INFER = "/v2/models/m/infer"
GOOD = b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}'
HEAD = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\n".encode()

SMALL = RestLimits(
    max_request_bytes=1 << 20,
    max_json_bytes=64 << 10,
    header_time_s=0.5,
    request_time_s=1.0,
    response_time_s=1.0,
    max_requests=2,
    max_waiting_requests=1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The socket between Envoy and the stand-in."""
    return tmp_path_factory.mktemp("rest")


@pytest.fixture(scope="module")
def proxy(project: Path, folder: Path) -> Iterator[Proxy]:
    """A proxy as it is by default."""
    with open_proxy(project, folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def stand_in(folder: Path) -> Iterator[Upstream]:
    """The stand-in; Envoy keeps its connections to it."""
    with upstream_in(folder) as server:
        yield server


@pytest.fixture
def upstream(stand_in: Upstream) -> Upstream:
    """The stand-in as if it were new."""
    stand_in.reset()
    return stand_in


@pytest.fixture
def own_proxy(project: Path, tmp_path: Path) -> Iterator[Callable[..., tuple[Proxy, Upstream]]]:
    """Open a proxy with other settings, and a stand-in behind it."""
    with contextlib.ExitStack() as stack:

        def make(limits: RestLimits | None = None, **options: object) -> tuple[Proxy, Upstream]:
            server = stack.enter_context(upstream_in(tmp_path))
            return stack.enter_context(open_proxy(project, tmp_path, limits, **options)), server

        yield make


def refused(answer: Answer, status: int, words: str, upstream: Upstream) -> None:
    """The answer is a refusal as Triton writes errors, and nothing reached Triton."""
    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert words in answer.error
    assert not upstream.seen


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2"),
        ("GET", "/v2/health/live"),
        ("GET", "/v2/health/ready"),
        ("GET", "/v2/models/stats"),
        ("GET", "/v2/models/m"),
        ("GET", "/v2/models/m/ready"),
        ("GET", "/v2/models/m/config"),
        ("GET", "/v2/models/m/stats"),
        ("GET", "/v2/models/a-b_c.2/versions/3"),
        ("GET", "/v2/models/m/versions/3/ready"),
        ("POST", "/v2/models/m/infer"),
        ("POST", "/v2/models/m/versions/3/infer"),
        ("POST", "/v2/models/m/versions/3/generate"),
        ("POST", "/v2/models/m/generate?x=/infer"),
    ],
)
def test_inference_and_questions_pass(proxy: Proxy, upstream: Upstream, method: str, path: str) -> None:
    """Requests that clients of a model need reach Triton unchanged."""
    body = GOOD if method == "POST" else None
    answer = proxy.ask(method, path, JSON, body=body)
    assert answer.status == 200
    assert answer.body == upstream.answer
    assert upstream.seen[0].line == f"{method} {path} HTTP/1.1"
    assert upstream.seen[0].body == (body or b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v2/repository/index", 403),
        ("POST", "/v2/repository/models/m/load", 403),
        ("POST", "/v2/repository/models/m/unload", 403),
        ("GET", "/v2/systemsharedmemory/status", 403),
        ("POST", "/v2/systemsharedmemory/region/r/register", 403),
        ("POST", "/v2/cudasharedmemory/unregister", 403),
        ("GET", "/v2/trace/setting", 403),
        ("POST", "/v2/models/m/trace/setting", 403),
        ("POST", "/v2/logging", 403),
        ("POST", "/v2/models/../repository/index", 403),
        ("POST", "/v2/models/%2e%2e/repository/index", 403),
        ("POST", "/v2/models/%2E%2E/repository/index", 403),
        ("POST", "//v2///repository//index", 403),
        ("POST", "/v2/models/x/..;/../repository/index", 403),
        ("POST", "/v2/models\\..\\repository\\index", 403),
        ("POST", "http://localhost/v2/repository/index", 403),
        ("POST", "/v2%2frepository%2findex", 400),
        ("POST", "/v2%5crepository%5cindex", 400),
        ("POST", "/V2/repository/index", 404),
        ("POST", "/v2/repository/index?/v2/health/live", 403),
        ("POST", "/v2/repository/index#/v2/health/live", 400),
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
        ("GET", "/v2/models/m/nothing", 404),
        ("GET", "/v2/models/m%00/ready", 400),
        ("GET", "/v2/models/m/versions/x", 404),
        ("OPTIONS", "/v2", 405),
        ("HEAD", "/v2/health/live", 405),
        ("POST", "/v2/health/live", 405),
        ("GET", INFER, 405),
        ("PUT", INFER, 405),
        ("CONNECT", "localhost:80", 404),
    ],
)
def test_all_else_is_closed(proxy: Proxy, upstream: Upstream, method: str, path: str, status: int) -> None:
    """Requests that change the server, and every unknown path, end here however they are spelled."""
    answer = proxy.ask(method, path, "admin-key: secret", JSON, body=None)
    assert answer.status == status
    if method != "HEAD":
        assert answer.error
    if status == 405:
        assert answer.headers["allow"] in ("GET", "POST")
    assert not upstream.seen


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ("/v2//health///live", "/v2/health/live"),
        ("/v2\\health\\live", "/v2/health/live"),
        ("/v2/models/x/../m/ready", "/v2/models/m/ready"),
        ("/v2/models/%6d/ready", "/v2/models/m/ready"),
        ("http://localhost/v2", "/v2"),
    ],
)
def test_a_path_reaches_triton_in_its_one_spelling(proxy: Proxy, upstream: Upstream, sent: str, received: str) -> None:
    """Triton sees the path that the rules were held against."""
    assert proxy.ask("GET", sent).status == 200
    assert upstream.seen[0].line == f"GET {received} HTTP/1.1"


def test_the_admin_key_is_nobodys_to_send(proxy: Proxy, upstream: Upstream) -> None:
    """The header that opens what is closed is taken away; so is a second spelling of it."""
    assert proxy.ask("GET", "/v2", "Admin-Key: x", "admin-key: y").status == 200
    assert upstream.seen[0].header("admin-key") is None
    assert proxy.ask("GET", "/v2", "admin_key: x").status == 400


def test_headers_that_steer_a_proxy_are_taken_away(proxy: Proxy, upstream: Upstream) -> None:
    """Envoy obeys none, and Triton sees none: callers on loopback are strangers like any."""
    steering = {
        "x-envoy-max-retries": "9",
        "x-envoy-retry-on": "retriable-status-codes",
        "x-envoy-original-path": "/x",
        "x-envoy-retriable-status-codes": "200",
        "x-forwarded-for": "10.0.0.1",
        "x-forwarded-host": "elsewhere",
        "forwarded": "for=10.0.0.1",
        "triton-grpc-protocol-admin-key": "x",
        "x-request-id": "x",
        "x-client-trace-id": "x",
    }
    sent = [f"{name}: {value}" for name, value in steering.items()]
    assert proxy.ask("GET", "/v2", *sent).status == 200
    (request,) = upstream.seen
    assert {name for name, _ in request.headers} == {"host", "x-forwarded-proto", "x-envoy-external-address"}


def test_answers_do_not_say_what_serves(proxy: Proxy, upstream: Upstream) -> None:
    """Triton's own header is replaced by one without a version, and Envoy adds none of its own."""
    headers = proxy.ask("GET", "/v2").headers
    assert headers["server"] == "triton"
    assert not [name for name in headers if name.startswith("x-")]
    assert upstream.seen[0].header("x-forwarded-for") is None


@pytest.mark.parametrize("verb", ["infer", "generate"])
def test_a_body_in_very_many_chunks_reaches_triton_in_one(proxy: Proxy, upstream: Upstream, verb: str) -> None:
    """A chunk for each byte (Triton's front end dies of 600,000) becomes a body with its length."""
    body = GOOD + b" " * 600_000
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    head = HEAD.replace(b"infer", verb.encode()) + b"Transfer-Encoding: chunked\r\n\r\n"
    assert proxy.send(head + chunks + b"0\r\n\r\n").status == 200
    assert upstream.seen[0].header("content-length") == str(len(body))
    assert upstream.seen[0].body == body


def test_a_get_brings_no_body(proxy: Proxy, upstream: Upstream) -> None:
    """Nothing is gathered for a question."""
    refused(proxy.ask("GET", "/v2", body=b"hello"), 413, "none with GET", upstream)


@pytest.mark.parametrize(
    ("head", "status", "words"),
    [
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "content_length_and_chunked"),
        (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", 400, "codec_error"),
        (b"Content-Length: 2, 2\r\n\r\n{}", 400, ""),
        (b"Content-Length: -1\r\n\r\n{}", 400, ""),
        (b"Content-Length: +2\r\n\r\n{}", 400, ""),
        (b"Content-Length: 99999999999999999999\r\n\r\n{}", 400, ""),
        (b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400, "transfer_encoding"),
        (b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400, "transfer_encoding"),
        (b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, ""),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400, ""),
        (b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", 400, ""),
        (b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400, ""),
        (b"A: b\0c\r\nContent-Length: 2\r\n\r\n{}", 400, ""),
        (b": b\r\nContent-Length: 2\r\n\r\n{}", 400, ""),
        (b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 403, "upgrade_failed"),
    ],
)
def test_a_request_that_two_could_read_differently_is_refused(
    proxy: Proxy, upstream: Upstream, head: bytes, status: int, words: str
) -> None:
    """Nothing that one server takes for the end of a request and another for its middle passes."""
    refused(proxy.send(HEAD + head), status, words, upstream)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /v2 HTTP/1.0\r\nHost: localhost\r\n\r\n", 426),
        (b"GET /v2\r\n\r\n", 426),
        (b"GET /v2 HTTP/1.1\r\n\r\n", 400),
        (b"GET /v2 HTTP/9.9\r\nHost: localhost\r\n\r\n", 426),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64, 0),
    ],
)
def test_only_two_versions_of_http_are_spoken(proxy: Proxy, upstream: Upstream, data: bytes, status: int) -> None:
    """HTTP/1.1 and HTTP/2; older ones and what is no HTTP are refused."""
    assert proxy.send(data).status == status
    assert not upstream.seen


def test_an_upgrade_to_http_2_is_overlooked(proxy: Proxy, upstream: Upstream) -> None:
    """`h2c` in a header, a way around many proxies, is answered in HTTP/1.1 and not handed on."""
    answer = proxy.ask("GET", "/v2", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    assert answer.status == 200
    assert upstream.seen[0].header("upgrade") is None
    assert upstream.seen[0].header("http2-settings") is None


def test_a_folded_header_reaches_triton_in_one_line(proxy: Proxy, upstream: Upstream) -> None:
    """A header that an old client broke over two lines is one for Triton, and hides no other header."""
    data = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n admin-key: c\r\n\r\n"
    assert proxy.send(data).status == 200
    assert upstream.seen[0].header("x-a") == "b admin-key: c"


def test_http_2_without_an_upgrade(proxy: Proxy, upstream: Upstream) -> None:
    """A client that begins with HTTP/2's preface is served by the same rules."""

    def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def request(stream: int, path: str) -> bytes:
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
        return frame(1, 0x5, stream, encoder.encode(fields))

    encoder, decoder, statuses = hpack.Encoder(), hpack.Decoder(), []
    with proxy.connect() as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
        connection.sendall(request(1, "/v2") + request(3, "/v2/repository/index"))
        stream = connection.makefile("rb")
        while len(statuses) < 2:
            head = stream.read(9)
            payload = stream.read(int.from_bytes(head[:3], "big"))
            if head[3] == 1:
                statuses.append(dict(decoder.decode(payload))[":status"])
    assert sorted(statuses) == ["200", "403"]
    assert [one.line for one in upstream.seen] == ["GET /v2 HTTP/1.1"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "127.9.9.9", "[::1]:8000"])
def test_the_loopbacks_names_are_known(proxy: Proxy, upstream: Upstream, host: str) -> None:
    """The address that a person on this machine would write is served."""
    assert proxy.ask("GET", "/v2", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "localhost:80@evil",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "localhost,evil",
        "",
        "localhost:8000:1",
        "localhost\\.evil",
    ],
)
def test_a_name_that_is_not_this_servers_is_refused(proxy: Proxy, upstream: Upstream, host: str) -> None:
    """A page whose name was made to mean this machine (DNS rebinding) tells its own name."""
    answer = proxy.ask("POST", INFER, JSON, body=GOOD, host=host)
    assert answer.status in (400, 403)
    assert not upstream.seen
    answer = proxy.ask("GET", "http://evil.example/v2")
    refused(answer, 403, "the Host header", upstream)


def test_further_names_can_be_given(own_proxy: Callable[..., tuple[Proxy, Upstream]]) -> None:
    """A server with other names is configured with them; a dot in a name is not a pattern."""
    proxy, _ = own_proxy(hosts=["triton.example", "10.0.0.1"])
    assert proxy.ask("GET", "/v2", host="Triton.Example:8000").status == 200
    assert proxy.ask("GET", "/v2", host="10.0.0.1").status == 200
    assert proxy.ask("GET", "/v2", host="triton-example").status == 403
    assert proxy.ask("GET", "/v2", host="10.0.0.2").status == 403


def test_any_name_can_be_allowed(own_proxy: Callable[..., tuple[Proxy, Upstream]]) -> None:
    """`*` gives up that guard."""
    proxy, _ = own_proxy(hosts=["*"])
    assert proxy.ask("GET", "/v2", host="whatever.example").status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:8000", ""])
def test_web_pages_are_refused(proxy: Proxy, upstream: Upstream, origin: str) -> None:
    """A browser tells whose page sends a request; none may by default, whatever it sends."""
    for method, path, body in (("POST", INFER, GOOD), ("GET", "/v2", None), ("OPTIONS", INFER, None)):
        answer = proxy.ask(method, path, JSON, f"Origin: {origin}", body=body)
        refused(answer, 403, "the Origin header", upstream)
        assert "access-control-allow-origin" not in answer.headers


def test_an_allowed_page_may_call(own_proxy: Callable[..., tuple[Proxy, Upstream]]) -> None:
    """The browser's question before the call and the call itself are answered for that page alone."""
    proxy, upstream = own_proxy(origins=["https://app.example"])
    ask_first = "Access-Control-Request-Method: POST"
    preflight = proxy.ask("OPTIONS", INFER, "Origin: https://app.example", ask_first)
    assert preflight.status == 200
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert "content-type" in preflight.headers["access-control-allow-headers"]
    assert not upstream.seen
    answer = proxy.ask("POST", INFER, JSON, "Origin: https://app.example", body=GOOD)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    for other in ("https://app.example.evil", "http://app.example", "https://appxexample", "null"):
        for verb in ("POST", "OPTIONS"):
            answer = proxy.ask(verb, INFER, JSON, f"Origin: {other}", ask_first, body=GOOD)
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "kind",
    [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "TEXT/PLAIN",
        "text/plain, application/json",
        "application/json, text/plain",
        "application/jsonp",
        "",
    ],
)
def test_what_a_form_can_send_is_refused(proxy: Proxy, upstream: Upstream, kind: str) -> None:
    """A content type that needs no question before it, or an unknown one, is refused with those to use."""
    answer = proxy.ask("POST", INFER, f"Content-Type: {kind}", body=GOOD)
    refused(answer, 415, "application/json or application/octet-stream", upstream)


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8", "application/octet-stream"])
def test_the_protocols_content_types_pass(proxy: Proxy, upstream: Upstream, kind: str) -> None:
    """A request without a content type passes too, as tritonclient sends it."""
    assert proxy.ask("POST", INFER, f"Content-Type: {kind}", body=GOOD).status == 200
    assert proxy.ask("POST", INFER, body=GOOD).status == 200


@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity", "br", "gzip, gzip", ""])
def test_packed_bodies_are_refused(proxy: Proxy, upstream: Upstream, coding: str) -> None:
    """Triton would unpack a bomb without a bound."""
    answer = proxy.ask("POST", INFER, JSON, f"Content-Encoding: {coding}", body=GOOD)
    refused(answer, 415, "the Content-Encoding header", upstream)


def test_a_long_body_is_refused(own_proxy: Callable[..., tuple[Proxy, Upstream]]) -> None:
    """The declared length counts before the body is sent; a body without a length ends where it passes the bound."""
    proxy, upstream = own_proxy(SMALL)
    answer = proxy.send(HEAD + b"Content-Length: 1048577\r\n\r\n")
    refused(answer, 413, "wanted 1048576 bytes at most", upstream)
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    untold = proxy.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 32 + b"0\r\n\r\n")
    refused(untold, 413, "wanted 1048576 bytes at most", upstream)
    raw = bytes(1 << 20)
    assert proxy.infer(raw, "Inference-Header-Content-Length: 0").status == 200


def test_long_headers_are_refused(proxy: Proxy, upstream: Upstream) -> None:
    """All together, one alone, their number, and the path."""
    for headers in (["A: " + "b" * 20_000], ["A: b"] * 100, [f"A{n}: " + "b" * 900 for n in range(30)]):
        refused(proxy.ask("GET", "/v2", *headers), 431, "64 of 16 KiB", upstream)
    refused(proxy.ask("GET", "/v2?" + "a" * 20_000), 431, "64 of 16 KiB", upstream)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v2 HTTP/1.1\r\nHost: loc",
        HEAD + b"Content-Length: 100\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
def test_slow_senders_are_ended(own_proxy: Callable[..., tuple[Proxy, Upstream]], data: bytes) -> None:
    """A head or a body that never ends is answered, and its connection closed."""
    proxy, upstream = own_proxy(SMALL)
    refused(proxy.send(data), 408, "did not come within", upstream)


def test_a_slow_model_is_answered_for(own_proxy: Callable[..., tuple[Proxy, Upstream]]) -> None:
    """The caller hears that Triton took too long."""
    proxy, upstream = own_proxy(SMALL)
    upstream.may_answer.clear()
    answer = proxy.infer(GOOD)
    assert (answer.status, answer.error) == (504, "Triton did not answer within 1 s")


def test_too_many_at_a_time_are_told_so(own_proxy: Callable[..., tuple[Proxy, Upstream]]) -> None:
    """With some requests at Triton and some waiting, the next gets 503 immediately; the others get their answers."""
    proxy, upstream = own_proxy(RestLimits(max_requests=2, max_waiting_requests=1))
    upstream.may_answer.clear()
    request = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(GOOD), GOOD)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(proxy.connect()) for _ in range(12)]
        for connection in waiting:
            connection.sendall(request)
        # Refusals come without anyone's help; then the others may go on.
        eventually(lambda: _readable(waiting) >= 8, "refusals")
        refusals = standstill(lambda: _readable(waiting))
        upstream.may_answer.set()
        answers = [exchange(one, b"") for one in waiting]
    assert {answer.status for answer in answers} == {200, 503}
    assert refusals == sum(answer.status == 503 for answer in answers)
    assert all("try again later" in one.error for one in answers if one.status == 503)


def _readable(connections: Sequence[socket.socket]) -> int:
    """The number of connections on which something has come."""
    return len(select.select(connections, [], [], 0)[0])


def test_connections_are_counted(own_proxy: Callable[..., tuple[Proxy, Upstream]]) -> None:
    """One connection too many is closed immediately; once the others end, new ones are served."""
    question = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    proxy, _ = own_proxy(RestLimits(max_connections=4))
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(proxy.connect()) for _ in range(12)]
        statuses = [exchange(connection, question).status for connection in held]
        # The fixture's own first connection may still count as one.
        assert 3 <= statuses.count(200) <= 4
        assert set(statuses) == {0, 200}
    assert set(iter(lambda: proxy.send(question).status, 200)) <= {0}


def test_bodies_that_never_end_do_not_fill_the_memory(own_proxy: Callable[..., tuple[Proxy, Upstream]]) -> None:
    """Bodies of 60 MiB, all kept open: memory stays near its bound, and others are served after."""
    proxy, _ = own_proxy(RestLimits(max_memory_mib=192))
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            connection = stack.enter_context(proxy.connect())
            connection.settimeout(0.5)
            with contextlib.suppress(OSError):
                connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (60 << 20))
                for _ in range(59):
                    connection.sendall(bytes(1 << 20))
        assert proxy.memory_mib() < 400
    statuses = iter(lambda: proxy.ask("GET", "/v2").status, 200)
    assert set(statuses) <= {503}


def test_a_streamed_answer_comes_piece_by_piece(proxy: Proxy, upstream: Upstream) -> None:
    """The first token is not held back for the last."""
    upstream.may_answer.clear()
    with proxy.connect() as connection:
        body = b'{"text":"x"}'
        head = HEAD.replace(b"infer", b"generate_stream")
        connection.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        reader = connection.makefile("rb")
        while b"first" not in reader.readline():
            pass
        upstream.may_answer.set()
        while b"second" not in reader.readline():
            pass


def test_without_triton_the_answer_is_503(project: Path, tmp_path: Path) -> None:
    """A server that is being started again is one to try later."""
    with open_proxy(project, tmp_path) as proxy:
        answer = proxy.infer(GOOD)
    assert answer.status == 503
    assert answer.error == "Triton is not there, or has too much to do; try again later"


def test_tritons_internal_error_for_wrong_json_is_the_callers(proxy: Proxy, upstream: Upstream) -> None:
    """Errors that depend on the model's configuration are 400, not 500; other errors stay as they are."""
    upstream.status = 500
    upstream.answer = b'{"error":"Unable to parse \'x\': attempt to access JSON non-string as string"}'
    answer = proxy.infer({"x": 1}, verb="generate")
    assert (answer.status, answer.body) == (400, upstream.answer)
    upstream.answer = b'{"error":"the model failed"}'
    assert proxy.infer({"x": 1}, verb="generate").status == 500


def test_nothing_is_left_in_shared_memory(proxy: Proxy) -> None:
    """Envoy's own region for a restart, whose name two processes would share, is not made."""
    assert not list(SHARED_MEMORY.glob("envoy*"))


def test_one_connection_carries_many_requests(proxy: Proxy, upstream: Upstream) -> None:
    """Refusals of a whole request leave the connection open; the next request on it is answered."""
    with proxy.connect() as connection:
        for _ in range(3):
            for body, status in ((GOOD, 200), (b"{}", 400)):
                data = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
                answer = exchange(connection, data)
                assert answer.status == status
                if answer.headers.get("connection") == "close":
                    connection.close()
                    return
        assert len(upstream.seen) == 3


def test_what_is_refused_is_json_of_one_line(proxy: Proxy, upstream: Upstream) -> None:
    """Quotes and bytes that are no text in a request break no answer."""
    answer = proxy.infer(b'{"inputs":[],"\xff\\"":1}')
    assert answer.status == 400
    assert json.loads(answer.body)
