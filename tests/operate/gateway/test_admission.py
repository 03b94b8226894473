"""Rights of callers, tested with a real Envoy over TLS: REST and gRPC, rates, and the audit log."""

from __future__ import annotations

import random
import socket
import struct

import grpc
import pytest

from tests.operate.gateway.conftest import Gateway, StartGateway
from tests.waiting import eventually
from tritonkit.client.wire.protos import schema
from tritonkit.operate.gateway.logs import STRANGERS_LOG
from tritonkit.operate.keys import revoke_key

pytestmark = pytest.mark.needs("envoy")

INFERENCE = "/inference.GRPCInferenceService"
ADMITTED = 503
"""Status of admitted requests, as there is no replica; over gRPC UNAVAILABLE."""


def infer(model: str) -> bytes:
    """A request for a model."""
    made: bytes = schema().ModelInferRequest(model_name=model).SerializeToString()
    return made


def test_a_stranger_is_refused_everywhere(gateway: Gateway) -> None:
    """Without a key, also for what is closed or not there: nobody learns what there is."""
    for path in ("/", "/v2", "/v2/health/ready", "/v2/models/digits", "/v2/repository/index", "/nothing"):
        status, text = gateway.get(path)
        assert (status, "no key" in text) == (401, True), path
    for method in ("ServerLive", "ModelInfer", "RepositoryIndex", "Nothing"):
        assert gateway.call(f"{INFERENCE}/{method}")[0] == "UNAUTHENTICATED", method
    assert gateway.call("/grpc.health.v1.Health/Check")[0] == "UNAUTHENTICATED"


@pytest.mark.parametrize("key", ["nothing", "tk_" + "x" * 43, "x" * 4000, "tk_", "*", "key", "models"])
def test_a_wrong_key_is_refused(gateway: Gateway, key: str) -> None:
    """Whatever it looks like, also where it is a name that the configuration has."""
    assert gateway.get("/v2", {"x-api-key": key})[0] == 401
    assert gateway.get("/v2", {"Authorization": f"Bearer {key}"})[0] == 401
    assert gateway.call(f"{INFERENCE}/ServerLive", x_api_key=key)[0] == "UNAUTHENTICATED"


def test_the_hash_of_a_key_is_no_key(gateway: Gateway) -> None:
    """A reader of the file of keys still has no key."""
    hashed = (gateway.places.folder / "keys.json").read_text().split('"sha256": "')[1][:64]
    assert gateway.get("/v2", {"x-api-key": hashed})[0] == 401


@pytest.mark.parametrize("header", ["x-api-key", "Authorization"])
def test_a_key_opens(gateway: Gateway, header: str) -> None:
    """In either header, over REST and gRPC."""
    value = gateway.keys["all"] if header == "x-api-key" else f"Bearer {gateway.keys['all']}"
    for path in ("/v2", "/v2/health/ready", "/v2/models/stats", "/v2/models/digits/versions/1/config"):
        assert gateway.get(path, {header: value})[0] == ADMITTED, path
    assert gateway.get("/v2/models/digits/infer", {header: value}, b"{}")[0] == ADMITTED
    name = header.lower().replace("-", "_")
    for method in ("ServerLive", "ServerReady", "ServerMetadata"):
        assert gateway.call(f"{INFERENCE}/{method}", **{name: value})[0] == "UNAVAILABLE"
    for method in ("ModelInfer", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"):
        called = gateway.call(f"{INFERENCE}/{method}", infer("digits"), **{name: value})
        assert called[0] == "UNAVAILABLE", method


def test_two_keys_are_refused(gateway: Gateway) -> None:
    """The gateway does not guess which one counts."""
    headers = {"x-api-key": gateway.keys["all"], "Authorization": f"Bearer {gateway.keys['digits']}"}
    assert gateway.get("/v2", headers) == (401, '{"error":"two keys: wanted one, in x-api-key or in authorization"}\n')


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/digits/infer", ADMITTED),
        ("/v2/models/digits/versions/2/infer", ADMITTED),
        ("/v2/models/digits/generate_stream", ADMITTED),
        ("/v2/models/sentences/infer", 403),
        ("/v2/models/digits_network/infer", 403),
        ("/v2/models/Digits/infer", 403),
        ("/v2/models/digits/../sentences/infer", 403),
        ("/v2/models/digits/./../sentences/infer", 403),
        ("/v2/models/%64igits/infer", ADMITTED),
        ("/v2/models/digits%2f..%2fsentences/infer", 400),
        ("/v2//models//sentences/infer", 403),
        ("/v2/models/sentences/infer?/v2/models/digits/infer", 403),
        ("/v2/models/*/infer", 404),
        ("/v2/models/stats", 403),
        ("/v2/models", 404),
    ],
)
def test_a_key_of_one_model_over_rest(gateway: Gateway, path: str, status: int) -> None:
    """Other models are refused, however their path is written."""
    data = b"{}" if "infer" in path or "generate" in path else None
    assert gateway.get(path, {"x-api-key": gateway.keys["digits"]}, data)[0] == status


def test_a_key_of_one_model_over_grpc(gateway: Gateway) -> None:
    """Each method that names a model; what names none is open, what names all is not."""
    key = gateway.keys["digits"]
    for method in ("ModelInfer", "ModelReady", "ModelMetadata", "ModelConfig"):
        path = f"{INFERENCE}/{method}"
        assert gateway.call(path, infer("digits"), x_api_key=key)[0] == "UNAVAILABLE"
        assert gateway.call(path, infer("sentences"), x_api_key=key)[0] == "PERMISSION_DENIED"
        assert gateway.call(path, infer(""), x_api_key=key)[0] == "PERMISSION_DENIED"
    assert gateway.call(f"{INFERENCE}/ServerLive", x_api_key=key)[0] == "UNAVAILABLE"
    assert gateway.call(f"{INFERENCE}/ModelStreamInfer", infer("digits"), x_api_key=key)[0] == "PERMISSION_DENIED"


def test_statistics_want_a_key_for_all_models(gateway: Gateway) -> None:
    """Without a name they are about all, and a name that is there twice may be none in the end."""
    path = f"{INFERENCE}/ModelStatistics"
    for message in (b"", infer("digits"), infer("digits") + b"\x0a\x00"):
        assert gateway.call(path, message, x_api_key=gateway.keys["digits"])[0] == "PERMISSION_DENIED"
        assert gateway.call(path, message, x_api_key=gateway.keys["all"])[0] == "UNAVAILABLE"


@pytest.mark.parametrize("rate", [0.01, 1, 19, 21, 25, 29, 50, 99.9, 1000, 1e6])
def test_every_rate_is_taken(gateway: Gateway, rate: float) -> None:
    """Also those that do not fit Envoy's shortest interval: what it refuses, it refuses with all other changes."""
    key = gateway.add_key(f"rate-{rate}", rate=rate)
    gateway.reload()
    assert gateway.get("/v2", {"x-api-key": key})[0] == ADMITTED
    assert gateway.admin.rejected() == 0


def test_streams_want_a_key_without_a_rate(gateway: Gateway) -> None:
    """One stream has any number of requests."""
    key = gateway.add_key("limited", rate=1000)
    gateway.reload()
    path = f"{INFERENCE}/ModelStreamInfer"
    assert gateway.call(path, infer("digits"), x_api_key=key)[0] == "PERMISSION_DENIED"
    assert gateway.call(path, infer("digits"), x_api_key=gateway.keys["all"])[0] == "UNAVAILABLE"


ONE = {"x-tritonkit-requests": "1"}
"""Header of a stream with one request."""


def test_a_stream_of_one_request_is_like_any_request(gateway: Gateway) -> None:
    """Its model and its rate count; for another model it is refused."""
    path, named = f"{INFERENCE}/ModelStreamInfer", gateway.keys["digits"]
    assert gateway.call(path, infer("digits"), x_api_key=named, **ONE)[0] == "UNAVAILABLE"
    for message in (infer("sentences"), infer(""), infer("digits") + infer("sentences")):
        refused = gateway.call(path, message, x_api_key=named, **ONE)
        assert refused[0] == "PERMISSION_DENIED"
    key = gateway.add_key("streams", "digits", rate=0.01)
    gateway.reload()
    statuses = [gateway.call(path, infer("digits"), x_api_key=key, **ONE)[0] for _ in range(2)]
    assert statuses == ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]


def test_a_stream_that_says_one_request_has_no_other(gateway: Gateway) -> None:
    """A second message is refused with the first, whatever it is for."""
    authority = (gateway.places.folder / "tls" / "ca.crt").read_bytes()
    sent = (("x-api-key", gateway.keys["digits"]), *ONE.items())
    with grpc.secure_channel(gateway.address, grpc.ssl_channel_credentials(authority)) as channel:
        ask = channel.stream_stream(f"{INFERENCE}/ModelStreamInfer")
        for second in ("digits", "sentences"):
            call = ask(iter([infer("digits"), infer(second)]), metadata=sent, timeout=30)
            with pytest.raises(grpc.RpcError) as refused:
                list(call)
            assert refused.value.code().name == "INVALID_ARGUMENT"


def test_what_asks_about_a_model_has_a_bucket_of_its_own(gateway: Gateway) -> None:
    """A client asks twice before its first request, which a key of one request at a time could otherwise not make."""
    key = gateway.add_key("rare", "digits", rate=0.01)
    gateway.reload()

    def ask(method: str) -> str:
        return gateway.call(f"{INFERENCE}/{method}", infer("digits"), x_api_key=key)[0]

    assert ask("ModelReady") == "UNAVAILABLE"
    assert [ask(method) for method in ("ModelMetadata", "ModelConfig")] == ["UNAVAILABLE"] * 2
    assert [ask("ModelInfer") for _ in range(2)] == ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]
    statuses = {ask("ModelConfig") for _ in range(40)}
    assert statuses == {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}


def test_a_name_that_is_given_twice_is_the_last(gateway: Gateway) -> None:
    """Protobuf, and so Triton, takes the last name: the first one must not open the door for it."""
    key, path = gateway.keys["digits"], f"{INFERENCE}/ModelInfer"
    assert gateway.call(path, infer("digits") + infer("sentences"), x_api_key=key)[0] == "PERMISSION_DENIED"
    filler = schema().ModelInferRequest(id="x" * 100_000).SerializeToString()
    twice = infer("digits") + filler + infer("sentences")
    assert gateway.call(path, twice, x_api_key=key)[0] == "PERMISSION_DENIED"


def field(number: int, kind: int, content: bytes = b"") -> bytes:
    """One of protobuf's wire format, with a length where its kind has one."""
    tag = bytes([number << 3 | kind])
    if kind != 2:
        return tag + content
    length, rest = b"", len(content)
    while rest > 127:
        length, rest = length + bytes([rest % 128 | 128]), rest // 128
    return tag + length + bytes([rest]) + content


def read_as(message: bytes) -> str | None:
    """The model that protobuf finds in a message; None where it finds no message."""
    try:
        return str(schema().ModelInferRequest.FromString(message).model_name)
    except Exception:  # the class depends on protobuf's implementation
        return None


def framed(flag: int, message: bytes) -> bytes:
    """A message in gRPC's framing."""
    return struct.pack(">BI", flag, len(message)) + message


def test_a_name_is_found_wherever_it_stands(gateway: Gateway) -> None:
    """Also where what is read at a time ends within a field's tag, length or name."""
    key, path = gateway.keys["digits"], f"{INFERENCE}/ModelInfer"
    for length in (*range(4060, 4100), 8180, 70_000):
        message = infer("sentences") + field(3, 2, b"x" * length) + infer("digits")
        assert gateway.call(path, message, x_api_key=key)[0] == "UNAVAILABLE", length
        message = infer("digits") + field(3, 2, b"x" * length) + infer("sentences")
        assert gateway.call(path, message, x_api_key=key)[0] == "PERMISSION_DENIED", length


def test_no_message_passes_that_protobuf_reads_otherwise(gateway: Gateway) -> None:
    """Fields in any order and damaged bytes: what a key of one model opens is what protobuf finds in it."""
    key, path, rng = gateway.keys["digits"], f"{INFERENCE}/ModelInfer", random.Random(7)
    counts: dict[str, int] = {}
    for turn in range(400):
        parts = [infer("digits"), infer("sentences"), infer(""), field(3, 2, b"x" * rng.choice((0, 5, 200)))]
        parts += [schema().ModelInferRequest(raw_input_contents=[rng.randbytes(300)]).SerializeToString()]
        message = bytearray(b"".join(rng.choice(parts) for _ in range(rng.randint(1, 6))))
        for _ in range(rng.choice((0, 1, 1, 3)) if message else 0):
            message[rng.randrange(len(message))] = rng.choice((0, 2, 8, 10, 18, 127, 128, 138, 255))
        status = gateway.call(path, bytes(message), x_api_key=key)[0]
        counts[status] = counts.get(status, 0) + 1
        if status == "UNAVAILABLE":
            # What protobuf does not read, Triton refuses.
            assert read_as(bytes(message)) in ("digits", None), (turn, message.hex())
    assert min(counts.get(status, 0) for status in ("UNAVAILABLE", "PERMISSION_DENIED", "INVALID_ARGUMENT")) > 10


@pytest.mark.parametrize(
    "more",
    [
        field(4, 0, b"\x01"),
        field(3, 1, bytes(8)),
        field(3, 3),
        field(3, 5, bytes(4)),
        b"\x8a\x00\x09sentences",
        b"\x0a\x89\x80\x80\x80\x80\x00sentences",
        field(1, 2, b"x" * 513),
        field(3, 2) * 4096,
        b"\x1a",
        b"\x1a\x80",
    ],
)
def test_what_could_be_read_otherwise_is_refused(gateway: Gateway, more: bytes) -> None:
    """Kinds of fields that no message has, tags and lengths written long, more fields than are read."""
    path = f"{INFERENCE}/ModelInfer"
    status, words = gateway.call(path, infer("digits") + more, x_api_key=gateway.keys["all"])
    assert (status, "as it is" in words) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\x00",
        framed(1, infer("digits")),
        framed(0, infer("digits")) * 2,
        framed(0, infer("digits"))[:-1],
        framed(0, infer("digits")) + b"\x00",
    ],
)
def test_what_is_not_one_message_is_refused(gateway: Gateway, body: bytes) -> None:
    """gRPC's own library sends none of these, others can: half of one, two, none, one that is packed."""
    headers = {"x-api-key": gateway.keys["all"], "Content-Type": "application/grpc", "TE": "trailers"}
    status, _, sent = gateway.post(f"{INFERENCE}/ModelInfer", headers, body)
    assert (status, sent["grpc-status"]) == (200, "3")


@pytest.mark.parametrize("message", [b"\xff", b"\x0a\x05ab", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 100, b"\x00"])
def test_what_is_no_request_never_passes(gateway: Gateway, message: bytes) -> None:
    """Bytes that do not parse have no model, so a key of one model does not open them."""
    path = f"{INFERENCE}/ModelInfer"
    status, _ = gateway.call(path, message, x_api_key=gateway.keys["digits"])
    assert status in ("INVALID_ARGUMENT", "PERMISSION_DENIED")


def test_messages_that_are_packed_are_refused(gateway: Gateway) -> None:
    """A packed message could name another model."""
    called = gateway.call(
        f"{INFERENCE}/ModelInfer", infer("digits"), x_api_key=gateway.keys["all"], grpc_encoding="gzip"
    )
    assert called == ("UNIMPLEMENTED", "grpc-encoding: wanted identity, send messages as they are")


@pytest.mark.parametrize(
    "method",
    [
        "RepositoryIndex",
        "RepositoryModelLoad",
        "RepositoryModelUnload",
        "SystemSharedMemoryStatus",
        "SystemSharedMemoryRegister",
        "SystemSharedMemoryUnregister",
        "CudaSharedMemoryStatus",
        "CudaSharedMemoryRegister",
        "CudaSharedMemoryUnregister",
        "TraceSetting",
        "LogSettings",
        "Nothing",
    ],
)
def test_what_changes_the_server_is_closed_over_grpc(gateway: Gateway, method: str) -> None:
    """To every key, with and without what would open it at the server."""
    key = gateway.keys["all"]
    answer = gateway.call(f"{INFERENCE}/{method}", x_api_key=key)
    assert answer[0] == "PERMISSION_DENIED"
    assert "closed here" in answer[1]
    opened = gateway.call(f"{INFERENCE}/{method}", x_api_key=key, triton_grpc_protocol_admin_key="anything")
    assert opened[0] == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    "path",
    [
        "/v2/repository/index",
        "/v2/repository/models/digits/load",
        "/v2/systemsharedmemory/status",
        "/v2/cudasharedmemory/region/x/register",
        "/v2/trace/setting",
        "/v2/logging",
        "/v2/models/digits/trace/setting",
    ],
)
def test_what_changes_the_server_is_closed_over_rest(gateway: Gateway, path: str) -> None:
    """The same over REST."""
    status, text = gateway.get(path, {"x-api-key": gateway.keys["all"]}, b"{}")
    assert (status, "closed here" in text) == (403, True)


def test_a_revoked_key_is_refused_while_the_gateway_runs(gateway: Gateway) -> None:
    """And a new one is taken, without a restart; the others go on."""
    key = gateway.add_key("short")
    gateway.reload()
    revoke_key(gateway.places.folder / "keys.json", "short")
    gateway.reload()
    assert gateway.get("/v2", {"x-api-key": key})[0] == 401
    assert gateway.get("/v2", {"x-api-key": gateway.keys["all"]})[0] == ADMITTED


def test_a_key_has_its_rate(gateway: Gateway) -> None:
    """Requests beyond it are refused immediately; other keys are not slowed."""
    key = gateway.add_key("slow", rate=1.0)
    gateway.reload()
    assert gateway.get("/v2", {"x-api-key": key})[0] == ADMITTED
    statuses = [gateway.get("/v2", {"x-api-key": key})[0] for _ in range(10)]
    assert 429 in statuses
    assert eventually(lambda: gateway.call(f"{INFERENCE}/ServerLive", x_api_key=key)[0] == "RESOURCE_EXHAUSTED")
    others = [gateway.get("/v2", {"x-api-key": gateway.keys["all"]})[0] for _ in range(10)]
    assert set(others) == {ADMITTED}


def test_plain_text_is_refused(gateway: Gateway) -> None:
    """No answer comes without TLS, over HTTP/1.1 and HTTP/2."""
    for request in (b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)):
        with socket.create_connection(("127.0.0.1", gateway.places.port), 30) as connection:
            connection.sendall(request)
            received = b""
            try:
                while piece := connection.recv(1000):
                    received += piece
            except ConnectionResetError:
                pass
        assert b"HTTP" not in received


def test_the_audit_log_says_who_did_what(gateway: Gateway) -> None:
    """A line for each request, also those that were refused, strangers in a log of their own; no key is in either."""
    requests = [
        ("digits", "/v2/models/digits/versions/991/infer"),
        ("digits", "/v2/models/sentences/versions/992/infer"),
        ("all", "/v2/models/made_up/versions/993/infer"),
        ("", "/v2/models/digits/versions/994/infer"),
    ]
    for name, path in requests:
        gateway.get(f"{path}?secret=1", {"x-api-key": gateway.keys.get(name, "tk_wrong")}, b"{}")
    lines = gateway.audit([path for _, path in requests[:3]])
    lines += gateway.audit([requests[3][1]], STRANGERS_LOG)
    assert [(line["key"], line["model"], line["status"]) for line in lines] == [
        ("digits", "digits", ADMITTED),
        ("digits", "sentences", 403),
        ("all", "unknown", ADMITTED),
        (None, None, 401),
    ]
    assert all(line["request_id"] and line["duration_ms"] >= 0 and line["caller"] for line in lines)
    assert lines[0]["request_bytes"] == 2
    assert gateway.places.audit is not None
    text, of_strangers = (gateway.places.audit.with_name(name).read_text() for name in ("audit.jsonl", STRANGERS_LOG))
    assert requests[3][1] not in text
    assert all(path not in of_strangers for _, path in requests[:3])
    text += of_strangers
    assert not any(key in text for key in (*gateway.keys.values(), "tk_wrong", "secret"))


def test_requests_beyond_the_limit_are_refused(start_gateway: StartGateway) -> None:
    """Before a replica sees them, over REST and gRPC."""
    gateway = start_gateway("limits: {request_mib: 4}")
    key = gateway.add_key("all")
    gateway.reload()
    big = schema().ModelInferRequest(model_name="digits", id="x" * (6 << 20)).SerializeToString()
    called = gateway.call(f"{INFERENCE}/ModelInfer", big, x_api_key=key)
    assert called == ("RESOURCE_EXHAUSTED", "the request: found more, wanted 4 MiB at most")
    sent = gateway.get("/v2/models/digits/infer", {"x-api-key": key}, bytes(6 << 20))
    assert sent == (413, '{"error":"the request: found more, wanted 4 MiB at most"}\n')
    little = infer("digits") + schema().ModelInferRequest(id="x" * (3 << 20)).SerializeToString()
    assert gateway.call(f"{INFERENCE}/ModelInfer", little, x_api_key=key)[0] == "UNAVAILABLE"


def test_callers_need_a_certificate_where_that_is_asked(start_gateway: StartGateway) -> None:
    """Mutual TLS: without one no request is read."""
    gateway = start_gateway("tls: {client_ca: tls/ca.crt}")
    with pytest.raises(OSError, match=r"certificate required|reset|EOF"):
        gateway.get("/v2")
